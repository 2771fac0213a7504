"""What a question looks like: its answers, one button, and the answer next to the measured value.

There is one button, Commit, which becomes Predict again: the focus of the keyboard stays on it, and nothing jumps.
"""

import functools
import html
import importlib.util
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ipywidgets import widgets

from d2lite.figures.learner_prediction import Prediction, prediction_html
from d2lite.widgets.style import CLASS, sheet

__all__ = ["PredictLayout"]

_LAYOUT = widgets.Layout
_ROW_PX, _CARD_PX = 26, 58  # of one choice, of the answer
_ENTER_S = 0.25  # the page sends Enter before the text that was typed,
_LATE_S = 5.0  # and a slow one sends the text later than that: it is committed when it comes
_DOUBLE_CLICK_S = 0.7
_CSS = """<style>
.d2lite-predict .widget-radio, .d2lite-predict .widget-radio-box { height: auto; width: 100%; max-width: 100%; }
.d2lite-predict .widget-radio-box { margin-bottom: 0; }
.d2lite-predict .widget-radio-box label { height: auto; max-width: 100%; font-size: 13px; line-height: 20px;
  white-space: normal; overflow: visible; margin: 0; padding: 3px 0; color: var(--jp-ui-font-color1, inherit);
  display: flex; align-items: flex-start; }
.d2lite-predict .widget-radio-box label input { order: -1; flex: none; margin: 0 6px 0 0; } /* before the text */
.d2lite-predict .d2lite-question { font-weight: 600; overflow-wrap: anywhere; }
.d2lite-predict .d2lite-refused { border-left: 4px solid #D55E00; padding-left: 8px; }
</style>"""


# ipywidgets' radio buttons are no group: without this the arrow keys would choose another cell of the notebook.
# Colab's widget manager makes all buttons anew when one is chosen; the focus of the keyboard goes with them.
_GROUP = """
export default { render({ el }) {
    const name = "d2lite-" + Math.random(), observer = new MutationObserver(() => join());
    let box, held = false; // whether the focus is on one of the buttons
    const join = () => {
        const strangers = [...box.querySelectorAll("input")].filter(radio => radio.name !== name);
        for (const radio of strangers) {
            radio.name = name;
            radio.setAttribute("data-lm-suppress-shortcuts", "true"); // of JupyterLab
        }
        if (strangers.length && held && document.activeElement === document.body)
            (box.querySelector("input:checked") ?? strangers[0]).focus();
    };
    const timer = setInterval(() => {
        const all = el.closest(".d2lite-predict"), question = all?.querySelector(".d2lite-question");
        box = all?.querySelector(".widget-radio-box");
        if (!box?.querySelector("input") || !question) return;
        clearInterval(timer);
        box.setAttribute("role", "radiogroup");
        box.setAttribute("aria-label", question.textContent);
        box.addEventListener("focusin", () => { held = true; });
        box.addEventListener("focusout", () => setTimeout(() => { held = box.contains(document.activeElement); }));
        join();
        observer.observe(box, { childList: true });
    }, 50);
    return () => { clearInterval(timer); observer.disconnect(); };
} };"""


class PredictLayout:
    """The widgets of a question: `widget` holds all, `inputs` takes the answer, `button` commits or opens again.

    commit(answer) is called with what was chosen or typed; its ValueError says in words why it cannot be the answer.
    again() opens the question once more. Without `choices` the answer is a number.
    """

    def __init__(
        self,
        asked: Prediction,
        choices: Sequence[str] | None,
        commit: Callable[[str], None],
        again: Callable[[], None],
        is_open: bool,
    ) -> None:
        self._commit, self._again, self._is_open = commit, again, is_open
        self._locked_at, self._entered_at = -_DOUBLE_CLICK_S, -_LATE_S
        unit = asked.unit
        question = widgets.HTML(f'<div class="d2lite-question">{html.escape(asked.question)}</div>')
        if choices is None:
            self.inputs: Any = widgets.Text(
                placeholder="a number" if unit in ("", "×") else f"a number in {unit}",
                description="Your answer",
                continuous_update=False,  # the text comes in one piece: never half of a number
                layout=_LAYOUT(width="260px", max_width="100%"),
                style={"description_width": "88px"},
            )
            self.inputs.on_msg(self._on_message)
            self.inputs.observe(self._on_late_text, "value")
        else:
            self.inputs = widgets.RadioButtons(options=choices, index=None, layout=_LAYOUT(width="auto"))
        self.result, self.message = widgets.HTML(), widgets.HTML()
        self.button = widgets.Button(layout=_LAYOUT(width="132px", flex="0 0 auto"))
        self.button.on_click(self._on_click)
        self._height = _CARD_PX if choices is None else max(_CARD_PX, _ROW_PX * len(choices))
        self._answer = widgets.Box(
            [self.inputs, self.result], layout=_LAYOUT(display="block", width="100%", overflow="hidden")
        )
        row = widgets.Box([self.button, self.message], layout=_LAYOUT(flex_flow="row wrap", align_items="center"))
        self.message.layout.margin = "0 0 0 8px"
        unseen = _LAYOUT(height="0", margin="0")
        group = [_group()(layout=unseen)] if choices is not None and _group() else []
        self.widget = widgets.VBox(
            [sheet(), widgets.HTML(_CSS, layout=unseen), *group, question, self._answer, row],
            layout=_LAYOUT(width="100%", overflow="hidden", margin="4px 0"),
        )
        self.widget.add_class(CLASS)
        self.widget.add_class("d2lite-predict")
        self.show(asked, is_open)

    def show(self, asked: Prediction, is_open: bool) -> None:
        """Show the question open or locked, as it is now."""
        self._is_open = is_open
        # nothing jumps while the learner answers; once it is measured, the box is as high as what is in it
        self._answer.layout.min_height = f"{self._height}px" if is_open or asked.measured is None else "0"
        self.inputs.layout.display = "flex" if is_open else "none"
        self.inputs.disabled = not is_open
        self.result.layout.display = "none" if is_open else "block"
        self.result.value = "" if is_open else prediction_html(asked, with_question=False)
        self.button.description = "Commit" if is_open else "Predict again"
        self.button.icon = "lock" if is_open else "unlock"
        self.button.button_style = "primary" if is_open else ""
        self.button.tooltip = "Lock this answer" if is_open else "Open the question; your first answer is kept"
        words = (
            "Your first answer is kept, and it counts." if asked.answers else "An answer is locked when you commit it."
        )
        self.message.value = words if is_open else ""

    def _on_click(self, _: object = None) -> None:
        if not self._is_open:
            if time.monotonic() - self._locked_at >= _DOUBLE_CLICK_S:
                self._again()
            return
        given = self.inputs.value
        try:
            if given is None:
                raise ValueError("choose one of the answers first.")
            self._commit(given)
        except ValueError as error:
            words = str(error).removeprefix("answer: ")
            self.message.value = f'<div class="d2lite-refused">{html.escape(words[:1].upper() + words[1:])}</div>'
        else:
            self._locked_at = time.monotonic()

    def _on_message(self, _: object, content: dict[str, Any], __: object) -> None:
        """Commit after Enter was pressed in the field, as soon as the text has arrived."""
        if content.get("event") == "submit" and self._is_open:
            self._entered_at = time.monotonic()
            timer = threading.Timer(_ENTER_S, self._on_enter)
            timer.daemon = True
            timer.start()

    def _on_late_text(self, _: object) -> None:
        if self._is_open and _ENTER_S <= time.monotonic() - self._entered_at < _LATE_S:
            self._on_enter()

    def _on_enter(self) -> None:
        if self._is_open:
            self._on_click()
            if not self._is_open and hasattr(self.button, "focus"):
                self.button.focus()  # the field is gone


@functools.cache
def _group() -> Any:
    """The class of an invisible widget that makes one group of the radio buttons; None without anywidget."""
    if importlib.util.find_spec("anywidget") is None:
        return None
    from anywidget import AnyWidget

    return type("Group", (AnyWidget,), {"_esm": _GROUP})
