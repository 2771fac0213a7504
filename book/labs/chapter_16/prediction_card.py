"""A prediction that travels: a card to keep, and the term of it that was wrong once a cluster has measured the step.

A step of k ranks that compute, send and wait takes compute + communication - hidden + straggler, in which communication
is the number of messages times the latency plus bytes over bandwidth (the alpha-beta model of `d2lite.costs.Link`). A
`PredictionCard` holds these terms as predicted, `Measured` what a cluster measured of them.
"""

import json
import math
import statistics
from collections.abc import Iterable
from dataclasses import KW_ONLY, asdict, dataclass, fields
from typing import Any, NoReturn, TypeVar

from d2lite.costs.alpha_beta import Link, lower_bound_n_bytes
from notebook_ranks.shared.checks import (
    all_of,
    instance_of,
    non_negative_number,
    positive_int,
    positive_number,
    whole_number,
)
from notebook_ranks.shared.format import format_bytes, format_number, format_seconds, listed

from ..chapter_08.step import StepPrediction

__all__ = [
    "CardVerdict",
    "Measured",
    "PredictionCard",
    "card_from_json",
    "card_of_step",
    "compare_with_measured",
    "measured_from_json",
]

CARD_SCHEMA = "d2lite-prediction/1"
MEASURED_SCHEMA = "d2lite-measured/1"
MOST_CHARS = 1_000_000
TOLERANCE = 0.1  # a prediction that is off by less holds
_ROUNDING = 1e-9
NOT_KNOWN = "not known"
HOW = {  # what Measured need not have, in words
    "compute_s": "compute_s (each rank's step without communication)",
    "latency_s": "latency_s (of one message)",
    "bandwidth_bytes_per_s": "bandwidth_bytes_per_s",
    "communication_s": "communication_s (the same messages without computing)",
}

_T = TypeVar("_T")


@dataclass(frozen=True)
class PredictionCard:
    """A predicted step, term by term: plain data that travels as JSON.

    Attributes:
        what: The network and its minibatch, in words.
        mesh: The ranks: names of dimensions and their sizes, {"data": 2}.
        compute_s: Seconds that a typical rank computes in a step.
        num_messages: Messages one after the other in a step, so that their latency adds up. A ring all-reduce of k
            ranks has 2 (k - 1).
        latency_s: Seconds before the first byte of a message arrives.
        n_bytes: Bytes that a rank sends in a step.
        bandwidth_bytes_per_s: Bytes per second in one direction.
        hidden_s: Seconds of communication that are predicted to run beside the computation.
        straggler_s: Seconds that the slowest rank needs longer than a typical one.

    Raises:
        ValueError: A number is out of its range, `mesh` is empty, `hidden_s` is more than the communication or the
            computation, or the step takes more seconds than a float can hold.
        TypeError: A value is of another type.

    Example:
        >>> sending = {"num_messages": 4, "latency_s": 0.001, "n_bytes": 10_000_000, "bandwidth_bytes_per_s": 1e8}
        >>> card = PredictionCard("an MLP", {"data": 2}, compute_s=0.2, hidden_s=0.05, **sending)
        >>> round(card.communication_s, 3), round(card.seconds, 3)
        (0.104, 0.254)
        >>> card_from_json(card.to_json()) == card
        True
    """

    what: str
    mesh: dict[str, int]
    _: KW_ONLY
    compute_s: float
    num_messages: int
    latency_s: float
    n_bytes: float
    bandwidth_bytes_per_s: float
    hidden_s: float = 0.0
    straggler_s: float = 0.0

    def __post_init__(self) -> None:
        instance_of("what", self.what, str)
        instance_of("mesh", self.mesh, dict)
        if not self.mesh:
            raise ValueError('mesh: expected one dimension or more, such as {"data": 2}, got none.')
        mesh = {instance_of("mesh", name, str): positive_int(f"mesh[{name!r}]", n) for name, n in self.mesh.items()}
        checked = {"mesh": mesh, "num_messages": whole_number("num_messages", self.num_messages)}
        for name in ("compute_s", "bandwidth_bytes_per_s"):
            checked[name] = positive_number(name, getattr(self, name))
        for name in ("latency_s", "n_bytes", "hidden_s", "straggler_s"):
            checked[name] = non_negative_number(name, getattr(self, name))
        for name, value in checked.items():  # numbers of NumPy become plain ones, which JSON can hold
            object.__setattr__(self, name, value)
        for name, most in (("communication", self.communication_s), ("computation", self.compute_s)):
            if self.hidden_s > most * (1 + _ROUNDING):
                got = f"{format_seconds(most)}, got {format_seconds(self.hidden_s)}"
                raise ValueError(f"hidden_s: expected no more than the {name}, {got}.")
        if not math.isfinite(self.seconds):
            raise ValueError(f"the card: expected a step that ends, got {self.seconds} s.")

    @property
    def communication_s(self) -> float:
        """Predicted seconds of communication: the latency of all messages, and bytes over bandwidth."""
        return self.num_messages * self.latency_s + self.n_bytes / self.bandwidth_bytes_per_s

    @property
    def seconds(self) -> float:
        """The predicted step: compute + communication - hidden + straggler."""
        return self.compute_s + self.communication_s - self.hidden_s + self.straggler_s

    def to_json(self) -> str:
        """Return the card as text, for `card_from_json`."""
        return _as_json_text(CARD_SCHEMA, self)


@dataclass(frozen=True)
class Measured:
    """What a cluster measured: `step_s`, seconds of single steps, and, as far as it is known, what they consist of.

    `compute_s` has a number for each rank: a step without any communication. `latency_s` belongs to one message and
    `bandwidth_bytes_per_s` to large ones; `communication_s` is how long the messages of a step take when nothing
    computes. Raises ValueError for a number that is out of its range or an empty list, and TypeError for a value of
    another type.
    """

    step_s: list[float]
    compute_s: list[float] | None = None
    latency_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    communication_s: float | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"step_s": all_of("step_s", self.step_s, positive_number, least=1)}
        if self.compute_s is not None:
            checked["compute_s"] = all_of("compute_s", self.compute_s, positive_number, least=1)
        for name in ("latency_s", "communication_s"):
            if getattr(self, name) is not None:
                checked[name] = non_negative_number(name, getattr(self, name))
        if self.bandwidth_bytes_per_s is not None:
            checked["bandwidth_bytes_per_s"] = positive_number("bandwidth_bytes_per_s", self.bandwidth_bytes_per_s)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def to_json(self) -> str:
        """Return what was measured as text, for `measured_from_json`."""
        return _as_json_text(MEASURED_SCHEMA, self)


@dataclass(frozen=True, kw_only=True)
class CardVerdict:
    """What `compare_with_measured` found; printed, it is its `words`.

    Attributes:
        predicted_s: The predicted step.
        measured_s: The median of the measured steps.
        holds: Whether the prediction is right, to 10% or within the spread of the measured steps.
        terms: Seconds by which each term makes the measured step longer than the predicted one. Together they are
            measured_s - predicted_s. What the measurements cannot tell is "not known".
        factors: For each term that was not measured: how many times its predicted value this term would need to
            explain the whole rest by itself; infinite where the card predicts none. A term that cannot is left out.
        culprit: The term that was wrong, or None.
        words: All of this in words.
    """

    predicted_s: float
    measured_s: float
    holds: bool
    terms: dict[str, float]
    factors: dict[str, float]
    culprit: str | None
    words: str

    def __str__(self) -> str:
        return self.words


def card_of_step(what: str, step: StepPrediction, k: int, link: Link) -> PredictionCard:
    """Return the PredictionCard of a step of data parallelism on k ranks, which all-reduce each bucket by the ring.

    Args:
        what: The network and its minibatch, in words.
        step: What `predict_step` has returned for these k ranks, this link and the algorithm "ring".
        k: The number of ranks.
        link: The link between all of them.

    Raises:
        ValueError: `step` was predicted for another k, another link or another algorithm.
        TypeError: An argument is of another type.
    """
    instance_of("step", step, StepPrediction)
    k, link = positive_int("k", k), instance_of("link", link, Link)
    sent = [event.n_bytes for event in step.events if event.kind == "all_reduce"]
    card = PredictionCard(
        what,
        {"data": k},
        compute_s=step.overhead_s + step.compute_s,
        num_messages=2 * (k - 1) * len(sent),
        latency_s=link.latency_s,
        n_bytes=lower_bound_n_bytes(k, sum(sent)),
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
        hidden_s=max(0.0, step.communication_s - step.exposed_s),
        straggler_s=step.wait_s,
    )
    if not math.isclose(card.communication_s, step.communication_s, rel_tol=1e-6, abs_tol=1e-12):
        raise ValueError(
            f"step: expected {format_seconds(card.communication_s)} of communication, that of the ring on {k} ranks "
            f"and this link, got {format_seconds(step.communication_s)}. Pass the k and the link of predict_step."
        )
    return card


def card_from_json(text: str) -> PredictionCard:
    """Return the PredictionCard that `to_json` has written. Nothing is unpickled.

    Raises:
        ValueError: `text` is too long or not JSON, has another schema, a field is missing, one too many or there twice,
            or a value is wrong.
        TypeError: `text` is not a str.
    """
    return _from_text(text, CARD_SCHEMA, PredictionCard, [field.name for field in fields(PredictionCard)])


def measured_from_json(text: str) -> Measured:
    """Return the Measured of a text with "schema": "d2lite-measured/1"; only `step_s` must be there.

    Errors are those of `card_from_json`.
    """
    return _from_text(text, MEASURED_SCHEMA, Measured, ["step_s"])


def compare_with_measured(card: PredictionCard, measured: Measured) -> CardVerdict:
    """Return which term of a prediction was wrong, as a CardVerdict.

    The measured step minus the predicted one is divided among the terms: compute (of a typical rank: the median, of an
    even number of ranks the lower of the two in the middle, so that one slow rank is a straggler), straggler (the
    slowest rank minus the typical one), latency, bandwidth, congestion (communication beyond what latency and
    bandwidth explain) and overlap. Measured overlap is the compute time of the slowest rank plus the communication
    minus the step. So a wait that is in no other measurement counts as less overlap, and is "not known" once it is
    longer than all overlap that was predicted.

    A prediction holds if it is within 10% of the median step, or inside the range of the steps without their lowest
    and highest tenth. A term is the culprit if it is larger than all others together and twice as large as any of them,
    whatever their sign: so it explains more than half of the difference. Otherwise the verdict is not sure, and names
    the two largest.

    Raises:
        ValueError: `measured.compute_s` has another number of ranks than the mesh of the card.
        TypeError: An argument is of another type.

    Example:
        >>> sending = {"num_messages": 4, "latency_s": 0.001, "n_bytes": 10_000_000, "bandwidth_bytes_per_s": 1e8}
        >>> card = PredictionCard("an MLP", {"data": 2}, compute_s=0.2, **sending)
        >>> measured = Measured([0.61], [0.2, 0.21], 0.001, 2.5e7, 0.404)
        >>> verdict = compare_with_measured(card, measured)
        >>> verdict.culprit, round(verdict.terms["bandwidth"], 3)
        ('bandwidth', 0.3)
        >>> compare_with_measured(card, Measured([0.61])).culprit is None
        True
    """
    instance_of("card", card, PredictionCard)
    instance_of("measured", measured, Measured)
    k = math.prod(card.mesh.values())
    if measured.compute_s is not None and len(measured.compute_s) != k:
        raise ValueError(
            f"measured.compute_s: expected {k} numbers, one per rank of the card's mesh, got {len(measured.compute_s)}."
        )
    step_s = statistics.median(measured.step_s)
    terms = _terms_of(card, measured, step_s)
    factors = _factors(card, terms)
    low, high = _middle(measured.step_s)
    difference = step_s - card.seconds
    holds = abs(difference) <= TOLERANCE * card.seconds or low <= card.seconds <= high
    culprit = None if holds else _culprit(terms)
    words = [
        f"Predicted {format_seconds(card.seconds)}, measured {format_seconds(step_s)} "
        f"({_signed(difference)}, {difference / card.seconds:+.0%})."
    ]
    if holds:
        words += _holds_in_words(card, terms, difference, (low, high))
    elif culprit:
        words.append(f"The culprit is the {culprit}: {_signed(terms[culprit])}.")
        words.append(_values_in_words(card, culprit, terms[culprit]))
    else:
        words += _not_sure_in_words(measured, terms, factors)
    return CardVerdict(
        predicted_s=card.seconds,
        measured_s=step_s,
        holds=holds,
        terms=terms,
        factors=factors,
        culprit=culprit,
        words=" ".join(words),
    )


def _terms_of(card: PredictionCard, measured: Measured, step_s: float) -> dict[str, float]:
    """Return the terms that can be known, and "not known": together step_s - card.seconds."""
    terms = {}
    latency_s, bandwidth = measured.latency_s, measured.bandwidth_bytes_per_s
    communication_s = measured.communication_s
    if measured.compute_s is not None:
        typical_s, slowest_s = statistics.median_low(measured.compute_s), max(measured.compute_s)
        terms["compute"] = typical_s - card.compute_s
        terms["straggler"] = slowest_s - typical_s - card.straggler_s
    if latency_s is not None:
        terms["latency"] = card.num_messages * (latency_s - card.latency_s)
    if bandwidth is not None:
        terms["bandwidth"] = card.n_bytes / bandwidth - card.n_bytes / card.bandwidth_bytes_per_s
    if communication_s is not None and latency_s is not None and bandwidth is not None:
        terms["congestion"] = communication_s - card.num_messages * latency_s - card.n_bytes / bandwidth
    if communication_s is not None and measured.compute_s is not None:
        hidden_s = slowest_s + communication_s - step_s
        # below 0, or more than there is: something is in the step, or in a measurement, that is no overlap
        terms["overlap"] = card.hidden_s - min(max(hidden_s, 0.0), communication_s, slowest_s)
    rest = step_s - card.seconds - sum(terms.values())
    largest = max([step_s, card.seconds, *map(abs, terms.values())])
    return terms | {NOT_KNOWN: rest if abs(rest) > _ROUNDING * largest else 0.0}


def _factors(card: PredictionCard, terms: dict[str, float]) -> dict[str, float]:
    """Return the factor of each term that was not measured and alone can explain what is not known."""
    rest = terms[NOT_KNOWN]
    if not rest:
        return {}
    latency_s, sending_s = card.num_messages * card.latency_s, card.n_bytes / card.bandwidth_bytes_per_s
    seconds = {  # term -> (as predicted, as it would have to be)
        "compute": (card.compute_s, card.compute_s + rest),
        "straggler": (card.straggler_s, card.straggler_s + rest),
        "latency": (latency_s, latency_s + rest if card.num_messages else 0.0),
        "bandwidth": (sending_s, sending_s + rest if sending_s else 0.0),
        "congestion": (card.communication_s, card.communication_s + rest if rest > 0 else 0.0),
        "overlap": (card.hidden_s, card.hidden_s - rest),
    }
    found = {}
    for name, (predicted, needed) in seconds.items():
        possible = needed >= 0 if name in ("straggler", "overlap") else needed > 0
        if name == "overlap":
            possible = possible and needed <= min(card.communication_s, card.compute_s)
        if name == "congestion":
            possible = possible and card.communication_s > 0
        if name in terms or not possible:
            continue
        factor = needed / predicted if predicted else math.inf
        found[name] = 1 / factor if name == "bandwidth" else factor
    return found


def _middle(values: Iterable[float]) -> tuple[float, float]:
    """Return (lowest, highest) without the lowest and the highest tenth; of five values or more at least one each."""
    values = sorted(values)
    cut = max(len(values) // 10, int(len(values) >= 5))
    return values[cut], values[-1 - cut]


def _culprit(terms: dict[str, float]) -> str | None:
    """Return the term that is larger than all others together and twice as large as any; None if there is none."""
    largest, *others = sorted(terms, key=lambda name: -abs(terms[name]))
    sizes = [abs(terms[name]) for name in others]
    size = abs(terms[largest])
    is_clear = size > sum(sizes) and size >= 2 * max(sizes, default=0.0)
    return largest if is_clear and largest != NOT_KNOWN else None


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{format_seconds(abs(seconds))}"


def _holds_in_words(
    card: PredictionCard, terms: dict[str, float], difference: float, spread: tuple[float, float]
) -> list[str]:
    words = ["The prediction holds."]
    if abs(difference) > TOLERANCE * card.seconds:
        words = [f"The prediction holds: most steps take {' to '.join(map(format_seconds, spread))}."]
    off = [name for name in terms if name != NOT_KNOWN and abs(terms[name]) > TOLERANCE * card.seconds]
    if min((terms[name] for name in off), default=0.0) < 0 < max(terms[name] for name in off):
        words.append(f"But its terms do not: {listed(f'{name} {_signed(terms[name])}' for name in off)} cancel.")
    return words


def _values_in_words(card: PredictionCard, name: str, off_s: float) -> str:
    """Return a term as predicted and as measured, where it is off by so many seconds of a step."""
    if name == "bandwidth":
        measured = card.n_bytes / (card.n_bytes / card.bandwidth_bytes_per_s + off_s)
        return f"It is {format_bytes(measured)}/s, predicted {format_bytes(card.bandwidth_bytes_per_s)}/s."
    if name == "congestion":
        return "That is the communication beyond what its latency and its bandwidth explain."
    if name == "latency":
        off_s /= card.num_messages
    about, predicted_s, sign = {
        "compute": ("A typical rank computes for", card.compute_s, 1),
        "straggler": ("The slowest rank takes longer by", card.straggler_s, 1),
        "latency": ("That of a message is", card.latency_s, 1),
        "overlap": ("The communication that runs beside the computation takes", card.hidden_s, -1),
    }[name]
    return f"{about} {format_seconds(predicted_s + sign * off_s)}, predicted {format_seconds(predicted_s)}."


def _not_sure_in_words(measured: Measured, terms: dict[str, float], factors: dict[str, float]) -> list[str]:
    two = sorted((name for name in terms if terms[name]), key=lambda name: -abs(terms[name]))[:2]
    words = ["The step time alone names no term."]
    if len(terms) > 1:
        largest = listed(f"{name} ({_signed(terms[name])})" for name in two)
        words = [f"Not sure which term is wrong: the largest {'are' if len(two) > 1 else 'is'} {largest}."]
    if factors:
        unit = {"bandwidth": "as large", "overlap": "as much", "congestion": "as long as latency and bandwidth explain"}
        alone = [
            f"{name} {format_number(factor)} times {unit.get(name, 'as long')}"
            if math.isfinite(factor)
            else f"{name} {_signed(terms[NOT_KNOWN])}, where none is predicted"
            for name, factor in factors.items()
        ]
        words.append(f"One of these alone would explain what is not known: {'; '.join(alone)}.")
    if missing := [HOW[field] for field in HOW if getattr(measured, field) is None]:
        words.append(f"To decide, measure {listed(missing)}.")
    elif terms[NOT_KNOWN]:
        words.append("What is not known is in none of the measurements: reading the data, for example.")
    return words


def _as_json_text(schema: str, data: Any) -> str:
    """Return the schema and the fields that are not None as JSON, a line for each."""
    found = {"schema": schema} | {name: value for name, value in asdict(data).items() if value is not None}
    return "{" + ",\n ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()) + "}"


def _from_text(text: str, schema: str, kind: type[_T], required: Iterable[str]) -> _T:
    instance_of("text", text, str)
    if len(text) > MOST_CHARS:
        raise ValueError(f"text: expected at most {MOST_CHARS:,} characters, got {len(text):,}.")
    try:
        found = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"text: expected JSON, got an error: {error}. Paste all of it, braces included.") from error
    got = found.pop("schema", None) if isinstance(found, dict) else None
    if got != schema:
        raise ValueError(f'text: expected an object with "schema": "{schema}", got {str(got)[:80]!r}.')
    if missing := [name for name in required if name not in found]:
        raise ValueError(f"text: expected the fields {', '.join(required)}, got none for {', '.join(missing)}.")
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if extra := [name for name in found if name not in names]:
        raise ValueError(f"text: expected no fields but {', '.join(names)}, got {', '.join(extra)[:80]!r} as well.")
    try:
        return kind(**found)
    except TypeError as error:
        raise ValueError(f"text: {error}") from error


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is there twice")
    return found
