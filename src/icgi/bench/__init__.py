"""The paper's tables, claim and measurement side by side; nothing but rows of jobs and text."""
