"""Files that a script opens: those that it writes are noted, however many it has read."""

import subprocess
import sys
import textwrap

SCRIPT = """
    import os
    from ddp_rehearsal.observed_files import MOST_FILES, watch_files

    noted = []
    watch_files(lambda path, mode: noted.append((os.path.basename(path), mode)), lambda: True, os.devnull)
    for i in range(2 * MOST_FILES):
        with open(f"image-{i}", "w") if i < 3 else open(__file__) if i < 4 else open(os.devnull):
            pass
    names = [os.path.join("images", str(i)) for i in range(MOST_FILES + 5)]
    os.mkdir("images")
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_RDONLY))
    with open("log.txt", "w"), open("log.txt", "a"):
        pass
    read = [mode for _, mode in noted].count("r")
    print(read, noted[-2:], noted[:3])
"""


def test_what_is_written_is_noted_after_many_files_were_read(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)
    read, _, rest = done.stdout.partition(" ")
    assert read == "200"
    assert rest.strip() == (
        "[('log.txt', 'w'), ('log.txt', 'a')] [('image-0', 'w'), ('image-1', 'w'), ('image-2', 'w')]"
    )
