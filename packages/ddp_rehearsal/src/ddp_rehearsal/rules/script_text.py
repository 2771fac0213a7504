"""What the text of a script says about steps that were not run."""

import ast
from collections.abc import Sequence

from ddp_rehearsal.observations import Place

__all__ = ["averages_weights", "runs_to_the_end", "saves_for_each_rank", "sets_in_forward", "takes_rank_for_gpu"]

OF_WEIGHTS = ("param", "state_dict")  # in the names of what holds weights
EXCHANGES = ("reduce", "all_gather", "isend", "irecv", "send", "recv", "P2POp", "all_gather_into_tensor")
LEAVES = (ast.Break, ast.Return, ast.Yield, ast.YieldFrom, ast.Raise)  # a loop before its end, or a generator


def averages_weights(place: Place | None) -> bool:
    """Return whether the script averages weights, or sends them to other ranks than by a broadcast.

    It does if a collective is in a loop over parameters or over a state, or gets what was made of them.
    """
    nodes = _nodes(place)
    made_of_weights = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and _is_of_weights(ast.unparse(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def gets_weights(node: ast.AST, given: ast.AST) -> bool:
        names = {n.id for n in ast.walk(given) if isinstance(n, ast.Name)}
        return "grad" not in ast.unparse(node) and (
            bool(names & made_of_weights) or any(word in ast.unparse(given) for word in OF_WEIGHTS)
        )

    for node in nodes:
        if isinstance(node, ast.Call) and "average_param" in ast.unparse(node.func):
            return True
        if isinstance(node, ast.Call) and _is_exchange(node) and any(gets_weights(node, arg) for arg in node.args):
            return True
        if isinstance(node, ast.For) and gets_weights(node, node.iter):
            if any(isinstance(n, ast.Call) and _is_exchange(n) for n in ast.walk(node)):
                return True
    return False


def _is_of_weights(text: str) -> bool:
    return any(word in text for word in OF_WEIGHTS) and "grad" not in text


def _is_exchange(call: ast.Call) -> bool:
    """Return whether a call puts numbers of ranks together, or sends some."""
    return ast.unparse(call.func).rpartition(".")[2].removesuffix("_").endswith(EXCHANGES)


def saves_for_each_rank(place: Place | None) -> bool:
    """Return whether the script saves to a file with the rank in its name, as of a network that is the rank's own."""
    for node in _nodes(place):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("save") and len(node.args) > 1:
            path = node.args[1]
            parts = path.values if isinstance(path, ast.JoinedStr) else [path] if isinstance(path, ast.Call) else []
            if any("rank" in ast.unparse(part) for part in parts if not isinstance(part, ast.Constant)):
                return True
    return False


def sets_in_forward(place: Place | None, name: str) -> bool:
    """Return whether a `forward` of the script gives an attribute a fixed value, so that it begins anew each time."""
    forwards = (n for n in _nodes(place) if isinstance(n, ast.FunctionDef) and n.name == "forward")
    return any(
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and any(isinstance(target, ast.Attribute) and target.attr == name for target in node.targets)
        for forward in forwards
        for node in ast.walk(forward)
    )


def runs_to_the_end(place: Place | None) -> bool:
    """Return whether the line of a script is a `for` that nothing leaves earlier, and no part of a generator.

    A backward pass below it may be one that lets the others go on.
    """
    nodes = _nodes(place)
    trains = {n.name for n in nodes if isinstance(n, ast.FunctionDef) and any(map(_is_backward, ast.walk(n)))}
    for node in nodes:
        if isinstance(node, ast.For) and node.lineno <= place[1] <= node.iter.end_lineno:  # type: ignore
            below = [n for n in _around(node, nodes) if isinstance(n, ast.Call) and n.lineno > (node.end_lineno or 0)]
            if any(_is_backward(n) or getattr(n.func, "id", "") in trains for n in below):
                return False
            called = {n.attr if isinstance(n, ast.Attribute) else getattr(n, "id", "") for n in ast.walk(node.iter)}
            is_cut = called & {"islice", "zip", "cycle", "range", "repeat"}
            exits = any(isinstance(n, ast.Call) and ast.unparse(n.func).endswith("exit") for n in ast.walk(node))
            return not is_cut and not exits and not any(isinstance(n, LEAVES) for n in ast.walk(node))
    return False


def takes_rank_for_gpu(place: Place | None) -> int:
    """Return the line where a script of torchrun gives the global rank to `set_device`, "cuda:" or `.to`; 0 if none.

    A script that asks for the local rank, counts GPUs, or starts its ranks itself is not looked at.
    """
    nodes = _nodes(place)
    words = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    names = {n.attr if isinstance(n, ast.Attribute) else n.id for n in nodes if isinstance(n, ast.Attribute | ast.Name)}
    if {"LOCAL_RANK", "SLURM_LOCALID"} & words or names & {"local_rank", "device_count", "spawn", "Process"}:
        return 0
    ranks = {
        target.id
        for n in nodes
        if isinstance(n, ast.Assign) and ast.unparse(n.value) in _RANK
        for target in n.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith(("set_device", ".cuda", ".to")):
            if isinstance(node.args[0], ast.Name) and node.args[0].id in ranks:
                return node.lineno
        if isinstance(node, ast.JoinedStr) and ast.unparse(node)[1:].strip("'\"") in {f"cuda:{{{r}}}" for r in ranks}:
            return node.lineno
    return 0


_RANK = {
    "int(os.environ['RANK'])",
    "int(os.getenv('RANK'))",
    "dist.get_rank()",
    "torch.distributed.get_rank()",
    "get_rank()",
}


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


def _around(inner: ast.For, nodes: Sequence[ast.AST]) -> list[ast.AST]:
    """Return the nodes of the function around a loop; those of the script if it is in none."""
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.lineno <= inner.lineno <= (n.end_lineno or 0)]
    if functions:
        return list(ast.walk(functions[-1]))
    elsewhere = {id(n) for of in nodes if isinstance(of, ast.FunctionDef) for n in ast.walk(of)}
    return [n for n in nodes if id(n) not in elsewhere]


def _nodes(place: Place | None) -> list[ast.AST]:
    """Return the nodes of the script of a place; none where it cannot be read."""
    if place is None:
        return []
    try:
        with open(place[0], encoding="utf-8") as file:
            return list(ast.walk(ast.parse(file.read())))
    except (OSError, ValueError, SyntaxError):
        return []
