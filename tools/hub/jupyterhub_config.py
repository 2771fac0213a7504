"""The configuration of the hub; `running_hub.py` writes what differs from start to start into settings.json."""

import json
import os
import sys
import sysconfig
from pathlib import Path

c = get_config()  # noqa: F821  JupyterHub defines it
settings = json.loads(Path("settings.json").read_text())
root = Path(settings["root"])

# on the loopback address alone
c.JupyterHub.bind_url = f"http://127.0.0.1:{settings['port']}"
c.JupyterHub.hub_ip = "127.0.0.1"
c.JupyterHub.hub_port = settings["hub_port"]
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{settings['proxy_port']}"
c.ConfigurableHTTPProxy.command = [settings["proxy"]]

# nothing is kept but the folders of the learners: accounts are those of settings.json
c.JupyterHub.db_url = "sqlite:///:memory:"
c.JupyterHub.cookie_secret = os.urandom(32)
c.JupyterHub.authenticator_class = "shared-password"
c.Authenticator.allowed_users = set(settings["learners"])
c.SharedPasswordAuthenticator.user_password = settings["password"]

# each server is a process of whoever started the hub: folders of their own, and no protection from each other
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = str(Path("learners").resolve() / "{username}")
c.Spawner.notebook_dir = "~"
c.Spawner.default_url = "/lab/tree/book/index.ipynb"
c.Spawner.cmd = [settings["python"], str(root / "tools/hub/single_user.py"), sysconfig.get_paths()["purelib"]]
c.Spawner.args = [
    f"--LabApp.app_settings_dir={root / 'tools/jupyterlab'}",
    f"--MappingKernelManager.cull_idle_timeout={settings['idle_kernel_s']}",  # with its page open, a kernel stays
]
if os.getuid() == 0:
    c.Spawner.args.append("--allow-root")
c.Spawner.environment = {"MALLOC_ARENA_MAX": "1"}  # as in the Makefile
c.Spawner.start_timeout = c.Spawner.http_timeout = 120

# this spawner enforces no mem_limit and no cpu_limit, so the number of servers is what bounds the memory
c.JupyterHub.active_server_limit = settings["most_servers"]

c.JupyterHub.services = [
    {
        "name": "culler",
        "command": [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={settings['idle_server_s']}"],
    }
]
scopes = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
c.JupyterHub.load_roles = [{"name": "culler", "scopes": scopes, "services": ["culler"]}]
if settings["token"]:  # for a program that starts servers
    c.JupyterHub.services.append({"name": "program", "api_token": settings["token"]})
    c.JupyterHub.load_roles.append(
        {"name": "program", "scopes": ["admin:servers", "read:users"], "services": ["program"]}
    )
