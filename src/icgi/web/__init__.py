"""The viewer in its three homes (browser, notebook, report), and the HTTP service behind it."""
