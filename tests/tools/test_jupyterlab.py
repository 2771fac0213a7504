"""The settings with which `make lab` starts JupyterLab: no news, Markdown files as pages, room for names of files."""

import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "tools" / "jupyterlab"


@pytest.fixture
def defaults(tmp_path):
    """Return defaults(plugin): what JupyterLab takes for a user without settings of their own."""
    commands = pytest.importorskip("jupyterlab.commands")
    utils = pytest.importorskip("jupyterlab_server.settings_utils")
    schemas = str(Path(commands.get_app_dir()) / "schemas")

    def read(plugin):
        overrides, error = utils._get_overrides(str(FOLDER))
        assert not error
        found, _ = utils.get_settings(str(FOLDER), schemas, str(tmp_path), plugin, overrides=overrides)
        return {name: value["default"] for name, value in found["schema"]["properties"].items()}

    return read


@pytest.mark.filterwarnings("ignore")  # of the packages that it imports
def test_no_question_about_news_and_no_look_for_updates(defaults):
    found = defaults("@jupyterlab/apputils-extension:notification")
    assert found["fetchNews"] == "false" and found["checkForUpdates"] is False


@pytest.mark.filterwarnings("ignore")
def test_the_glossary_and_the_messages_open_as_pages(defaults):
    assert defaults("@jupyterlab/docmanager-extension:plugin")["defaultViewers"] == {"markdown": "Markdown Preview"}


@pytest.mark.filterwarnings("ignore")
def test_names_of_chapters_have_the_width_of_the_side_bar_to_themselves(defaults):
    found = defaults("@jupyterlab/filebrowser-extension:browser")  # 250 pixels: two columns leave 116 for a name
    columns = [name for name in found if name.startswith("show") and name.endswith("Column")]
    assert "showLastModifiedColumn" in columns and not any(found[name] for name in columns)


def test_each_setting_is_one_that_this_jupyterlab_has():
    commands = pytest.importorskip("jupyterlab.commands")
    for plugin, settings in json.loads((FOLDER / "overrides.json").read_text()).items():
        package, name = plugin.split(":")
        schema = json.loads((Path(commands.get_app_dir()) / "schemas" / package / f"{name}.json").read_text())
        assert set(settings) <= set(schema["properties"]), plugin
