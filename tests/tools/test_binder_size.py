"""The size of the Binder environment is computed from its files."""

import importlib.metadata

from tools import binder_size


def test_requirements_are_those_of_both_files():
    names = {line.split("==")[0].split(">")[0].split(";")[0].strip() for line in binder_size.requirements()}
    assert {"torch", "torchvision", "jupyterlab", "plotly", "numpy"} <= names and "." not in names


def test_disk_counts_each_file_once_and_no_cuda():
    sizes = binder_size.disk()
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)
    assert next(iter(sizes)) == "torch" and sizes["torch"] < 1.2e9
    assert not any(name.startswith(("nvidia", "triton")) for name in sizes)
    about = importlib.metadata.distribution("plotly")
    assert sizes["plotly"] == sum(p.stat().st_size for p in map(about.locate_file, about.files) if p.is_file())


def test_memory_is_read_from_the_results():
    peaks = binder_size.memory()
    assert len(peaks) >= 6 and all(50 < peak < 4000 for peak in peaks.values())


def test_both_are_printed(capsys):
    binder_size.main()
    said = capsys.readouterr().out
    assert said.startswith("disk: ") and " MB  chapter 2, kernel\n" in said
