"""A learner's server: JupyterLab of .venv, with JupyterHub from the hub's own environment.

It runs on the Python of .venv. The packages of the hub are searched last, and only in this process: kernels see .venv.
"""

import sys

if __name__ == "__main__":
    sys.path.append(sys.argv.pop(1))  # the hub's site-packages
    from jupyterhub.singleuser import main

    main()
