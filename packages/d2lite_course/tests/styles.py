"""Notebooks in which exercise 2.3 is solved in many styles, each a list of cells; `check` decides which are right."""

IMPORT = "from d2lite.exercises import check"
DEF = "def settings_for(k, batch_size, lr):\n    return k * batch_size, k * lr"
CHECK = 'check("2.3", settings_for)'


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def with_line(line: str) -> str:
    """The function with a line at its top."""
    return DEF.replace(":\n", f":\n    {line}\n", 1)


USES_ONE = "def settings_for(k, batch_size, lr):\n    return ONE * k * batch_size, ONE * k * lr"
HELPER = "def times(k, x):\n    return k * x"
USES_HELPER = "def settings_for(k, batch_size, lr):\n    return times(k, batch_size), times(k, lr)"
STYLES = {
    "plain": [DEF, CHECK],
    "one cell": [f"{DEF}\n\n{CHECK}"],
    "time of the cell": [f"%%time\n{DEF}", CHECK],
    "time of the check": [DEF, f"%%time\n{CHECK}"],
    "captured cell": [f"%%capture out --no-stderr\n{DEF}", CHECK],
    "time of a line": [HELPER, "%time scale = times(1, 1)", with_line("k = scale * k"), CHECK],
    "magics around": [f"%precision 3\n!echo hello\n{DEF}\n%pwd\ntimes?", CHECK],
    "indented magic": [f"if True:\n    %env D2LITE_X=1\n{indented(DEF)}", CHECK],
    "percent at the start of a line": [with_line("k = (k\n    % 1000)"), CHECK],
    "percent in a text": [with_line('text = """\n%time\n!ls\n"""'), CHECK],
    "percent in a text beside a magic": ["%pwd\n" + with_line('text = """\n%time\n!ls\n"""'), CHECK],
    "prompt": ["\n".join([">>> ONE = 1", ">>> ONE += 0"]), USES_ONE, CHECK],
    "try around an import": [
        "try:\n    import no_such_module as maths\nexcept ImportError:\n    import math as maths",
        with_line("k = maths.floor(k)"),
        CHECK,
    ],
    "if around the function": [f"if 3 > 2:\n{indented(DEF)}else:\n    settings_for = None", CHECK],
    "with around the function": ["import contextlib", f"with contextlib.suppress(KeyError):\n{indented(DEF)}", CHECK],
    "for around the function": [f"for ONE in (3, 2, 1):\n{indented(USES_ONE)}", CHECK],
    "try around the check": [DEF, f"try:\n    {CHECK}\nexcept Exception as error:\n    print(error)"],
    "main": [DEF, f'if __name__ == "__main__":\n    {CHECK}'],
    "partial": [
        "import functools\ndef scaled(one, k, batch_size, lr):\n    return one * k * batch_size, k * lr",
        "settings_for = functools.partial(scaled, 1)",
        CHECK,
    ],
    "partial in the check": [
        "from functools import partial\ndef scaled(k, batch_size, lr, one):\n    return one * k * batch_size, k * lr",
        'check("2.3", partial(scaled, one=1))',
    ],
    "constant by a call": ["ONE = int('1')", USES_ONE, CHECK],
    "constant by a loop": ["ONE = -2\nfor _ in range(3):\n    ONE += 1", USES_ONE, CHECK],
    "constant by a loop elsewhere": ["ONE = -2", "for _ in range(3):\n    ONE += 1", USES_ONE, CHECK],
    "constant by +=": ["ONE = 0", "ONE += 1", USES_ONE, CHECK],
    "constant by unpacking": ["(ONE, *others), last = [1, 2, 3], 4", USES_ONE, CHECK],
    "constant by a walrus": ["if (ONE := 1) > 0:\n    pass", USES_ONE, CHECK],
    "constant by with": ["import io\nwith io.StringIO('1') as file:\n    ONE = int(file.read())", USES_ONE, CHECK],
    "constant by match": ["match [1, 2]:\n    case [ONE, *_]:\n        pass", USES_ONE, CHECK],
    "constant of a setter": ["def set_it():\n    global ONE\n    ONE = 1", "set_it()", USES_ONE, CHECK],
    "list that grows": ["LIST = []", "LIST.append(1)", USES_ONE.replace("ONE", "LIST[0]"), CHECK],
    "table that is filled": [
        "TABLE = {}\ndef fill():\n    TABLE['one'] = 1",
        "fill()",
        USES_ONE.replace("ONE", "TABLE['one']"),
        CHECK,
    ],
    "table stored in a loop": [
        "TABLE = dict()",
        "for key in range(3):\n    TABLE[key] = key",
        USES_ONE.replace("ONE", "TABLE[1]"),
        CHECK,
    ],
    "attribute of a function": [
        HELPER,
        "times.one = 1",
        USES_HELPER.replace("times(k, batch_size)", "times(k, batch_size) * times.one"),
        CHECK,
    ],
    "registered by a decorator": [
        "KNOWN = {}\ndef known(f):\n    KNOWN[f.__name__] = f\n    return f",
        f"@known\n{HELPER}",
        USES_HELPER.replace("times(", "KNOWN['times']("),
        CHECK,
    ],
    "argument by name": [DEF, 'check("2.3", answer=settings_for)'],
    "both by name": [DEF, 'check(answer=settings_for, exercise="2.3")'],
    "score kept": [DEF, 'score = check("2.3", settings_for)\nassert score.solved'],
    "check of another name": [DEF, 'from d2lite.exercises import check as verify\nverify("2.3", settings_for)'],
    "check of the module": [DEF, 'import d2lite.exercises\nd2lite.exercises.check("2.3", settings_for)'],
    "check in a loop": [DEF, 'for name, answer in [("2.3", settings_for)]:\n    check(name, answer)'],
    "check in a function": [DEF, 'def verify():\n    return check("2.3", settings_for)\nverify()'],
    "method": [
        "class Rule:\n    one = 1\n    def settings(self, k, b, lr):\n        return self.one * k * b, k * lr",
        'rule = Rule()\ncheck("2.3", rule.settings)',
    ],
    "object that is called": [
        f"class Rule:\n{indented(DEF.replace('settings_for(', '__call__(self, '))}",
        'settings_for = Rule()\ncheck("2.3", settings_for)',
    ],
    "dataclass": [
        "from dataclasses import dataclass, field\n"
        "@dataclass\nclass Rule:\n    one: 'int' = field(default_factory=lambda: 1)",
        with_line("k = Rule().one * k"),
        CHECK,
    ],
    "named tuple": [
        "from typing import NamedTuple\nclass Settings(NamedTuple):\n    batch_size: int\n    lr: float",
        "def settings_for(k, batch_size, lr):\n    return Settings(k * batch_size, k * lr)",
        CHECK,
    ],
    "decorator with an argument": [
        "import functools\ndef repeated(n):\n    def wrap(f):\n        @functools.wraps(f)\n"
        "        def inner(*args):\n            return [f(*args) for _ in range(n)][-1]\n"
        "        return inner\n    return wrap",
        f"@repeated(2)\n{DEF}",
        CHECK,
    ],
    "cache": [f"from functools import lru_cache\n@lru_cache(maxsize=None)\n{HELPER}", USES_HELPER, CHECK],
    "nested function": [with_line("def by(x):\n        return k * x\n    return by(batch_size), by(lr)"), CHECK],
    "closure": [f"def make(one):\n{indented(DEF)}    return settings_for", "settings_for = make(1)", CHECK],
    "lambda": ["settings_for = lambda k, batch_size, lr: (k * batch_size, k * lr)", CHECK],
    "lambda in the check": ['check("2.3", lambda k, batch_size, lr: (k * batch_size, k * lr))'],
    "star import": ["from math import *", with_line("k = int(floor(k))"), CHECK],
    "helper in a later cell": [HELPER, USES_HELPER, CHECK, HELPER.replace("k * x", "None")],
    "function again after the check": [DEF, CHECK, DEF.replace("k * lr", "lr")],
    "function again before the check": [DEF.replace("k * lr", "lr"), DEF, CHECK],
    "first try, then right": [DEF.replace("k * lr", "lr"), CHECK, DEF, CHECK],
    "type hints": ["def settings_for(k: 'int', batch_size: int, lr: float) -> tuple[int, float]:\n"
                   "    return k * batch_size, k * lr", CHECK],
    "forward references": [
        "from __future__ import annotations",
        "def settings_for(k: Devices, batch_size: int, lr: Rate) -> Settings:\n    return k * batch_size, k * lr",
        CHECK,
    ],
    "async noise": [
        "import asyncio\nasync def one():\n    await asyncio.sleep(0)\n    return 1",
        "ONE = await one()",
        USES_ONE,
        CHECK,
    ],
    "generator": [
        "def both(k, *xs):\n    yield from (k * x for x in xs)",
        with_line("return tuple(both(k, batch_size, lr))"),
        CHECK,
    ],
    "global state in the function": ["calls = 0", with_line("global calls; calls += 1"), CHECK],
    "random seed": ["import random\nrandom.seed(0)\nONE = random.randint(1, 1)", USES_ONE, CHECK],
    "names of other alphabets": [DEF.replace("lr", "λ").replace("batch_size", "größe"), CHECK],
    "text by exec": ["exec('ONE = 1')", USES_ONE, CHECK],
    "globals by name": ["globals()['ONE'] = 1", USES_ONE, CHECK],
    "file that is written": [
        f"%%writefile rules_of_mine.py\n{HELPER}\n",
        "from rules_of_mine import times",
        USES_HELPER,
        CHECK,
    ],
    "lines of Windows": ["\r\n".join(DEF.split("\n")), CHECK],
    "comment with a question?": [f"# is it right?\n{DEF}  # 100 % right!", CHECK],
    "error in a cell above": ["1 / 0", "ONE = 1\nno_such_name\nONE = 3", USES_ONE, CHECK],
    "unused broken cell": ["this is no code", DEF, CHECK],
    "deleted name": ["ONE = 7", "del ONE\nONE = 1", USES_ONE, CHECK],
}  # fmt: skip
WRONG = {
    "one term": [DEF.replace("k * lr", "lr"), CHECK],
    "spoiled before the check": [USES_ONE, "ONE = 1", "ONE += 1", CHECK],
    "right after the check": [DEF.replace("k * lr", "lr"), CHECK, DEF],
    "check of something else": [DEF, 'check("2.3", lambda k, batch_size, lr: (batch_size, lr))'],
}
