"""Answers as pages and pictures for people."""
