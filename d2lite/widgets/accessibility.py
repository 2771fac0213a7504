"""Names, values in words and a kept focus, which keyboards and screen readers need and ipywidgets leaves out."""

from anywidget import AnyWidget

__all__ = ["Accessibility"]


class Accessibility(AnyWidget):
    """An invisible widget that watches the widget of the class d2lite around it.

    A slider gets the name and the value that are written next to it (a logarithmic one would announce the logarithm),
    the buttons of a player get names. Where a button with the focus is disabled, the focus goes to the other of the
    first two in its row: from Train to Stop, and back.
    """

    _esm = """
    const PLAYER = { "fa-play": "Play", "fa-pause": "Pause", "fa-stop": "Back to the start", "fa-retweet": "Repeat" };
    const set = (node, name, value) => value && node.getAttribute(name) !== value && node.setAttribute(name, value);
    const name = (root) => {
        for (const box of root.querySelectorAll(".widget-slider, .widget-inline-hbox")) {
            const label = box.querySelector(".widget-label")?.textContent.trim();
            const shown = box.querySelector(".widget-readout")?.textContent.trim();
            for (const handle of box.querySelectorAll(".noUi-handle")) {
                set(handle, "aria-label", label);
                set(handle, "aria-valuetext", shown);
            }
            for (const readout of box.querySelectorAll(".widget-readout[contenteditable=true]")) {
                set(readout, "role", "textbox");
                set(readout, "aria-label", label && label + ", as a number");
            }
        }
        for (const button of root.querySelectorAll(".widget-play button"))
            for (const [icon, words] of Object.entries(PLAYER))
                if (button.querySelector("." + icon)) set(button, "aria-label", words);
        // what scrolls can be reached by the keyboard
        for (const box of root.querySelectorAll(".d2lite-scrolls"))
            box.scrollHeight > box.clientHeight + 1 || box.scrollWidth > box.clientWidth + 1
                ? set(box, "tabindex", "0") : box.removeAttribute("tabindex");
    };
    const keep = (button, tries = 100) => {  // the buttons of a row change one after another
        const now = document.activeElement, elsewhere = "button, input, select, textarea, [contenteditable=true], a";
        if (!button.isConnected || (now && now !== button && now.matches(elsewhere))) return;
        const next = [...button.parentElement.children].slice(0, 2).find((other) => other.matches("button:enabled"));
        if (next) next.focus();
        else if (tries) setTimeout(keep, 100, button, tries - 1);
    };
    export default { render({ el }) {
        let watcher, root, last;
        const focused = (event) => { last = event.target; };
        const start = () => {
            root = el.isConnected && el.closest(".d2lite");
            if (!root) return;
            clearInterval(timer);
            name(root);
            root.addEventListener("focusin", focused);
            watcher = new MutationObserver((changes) => {
                name(root);
                for (const { target, attributeName } of changes)
                    if (attributeName === "disabled" && target.disabled && target === last) keep(target);
            });
            const what = { subtree: true, childList: true, characterData: true, attributes: true };
            watcher.observe(root, { ...what, attributeFilter: ["disabled", "aria-valuetext", "class"] });
        };
        const timer = setInterval(start, 100);
        return () => { clearInterval(timer); watcher?.disconnect(); root?.removeEventListener?.("focusin", focused); };
    } };"""
