"""A JupyterHub on this machine alone, to try a class before it begins: `make hub`."""
