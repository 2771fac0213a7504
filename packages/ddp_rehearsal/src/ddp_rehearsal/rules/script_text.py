"""What the text of a script says about steps that were not run."""

import ast

from ddp_rehearsal.observations import Place

__all__ = ["averages_weights", "runs_to_the_end", "takes_rank_for_gpu"]

LEAVES = (ast.Break, ast.Return, ast.Yield, ast.YieldFrom, ast.Raise)  # a loop before its end, or a generator


def averages_weights(place: Place | None) -> bool:
    """Return whether the script has a loop over parameters with a collective in it, or a call that averages them."""
    for node in _nodes(place):
        if isinstance(node, ast.Call) and "average_param" in ast.unparse(node.func):
            return True
        if isinstance(node, ast.For) and "param" in ast.unparse(node.iter) and ".grad" not in ast.unparse(node):
            called = [ast.unparse(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)]
            if any(name.endswith(("reduce", "all_gather")) for name in called):
                return True
    return False


def runs_to_the_end(place: Place | None) -> bool:
    """Return whether the line of a script is a `for` that nothing leaves earlier, and no part of a generator."""
    for node in _nodes(place):
        if isinstance(node, ast.For) and node.lineno <= place[1] <= node.iter.end_lineno:  # type: ignore
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


def _nodes(place: Place | None) -> list[ast.AST]:
    """Return the nodes of the script of a place; none where it cannot be read."""
    if place is None:
        return []
    try:
        with open(place[0], encoding="utf-8") as file:
            return list(ast.walk(ast.parse(file.read())))
    except (OSError, ValueError, SyntaxError):
        return []
