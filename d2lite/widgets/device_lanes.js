// The page's half of DeviceLanes: plays the recorded step that device_lanes.py sends, one lane per device.
const SECONDS = 2.4, TICK_MS = 100;  // of one step on the page; ten small changes per second: the cores are for the training
const STARTS = [0, 0.14, 0.62, 0.86, 1];  // of the four phases
const STOPS = [0.1399, 0.6199, 0.74, 0.8599, 1];  // the end of each, and where the gradients are one sum
const NAMES = (s) => s.lanes.length > 1 ? [
    `1 each device gets its shard of the ${s.batch} pictures`, "2 forward and backward pass, side by side",
    `3 all-reduce: ${s.lanes.length} gradients (${s.bytes} each) become one sum`, "4 the same update on every device",
] : [`1 one device gets all ${s.batch} pictures`, "2 its forward and backward pass", "3 nothing to send", "4 its update"];
const make = (tag, parent, props = {}, style = {}) => {
    const el = parent.appendChild(document.createElement(tag));
    Object.assign(el, props); Object.assign(el.style, style);
    return el;
};
const picture = (parent, bytes, size) => {  // 28 x 28 grey values
    const canvas = make("canvas", parent, { width: 28, height: 28 }, { width: size + "px", height: size + "px", borderRadius: "3px" });
    const context = canvas.getContext("2d"), image = context.createImageData(28, 28);
    for (let i = 0; i < 784; i++) image.data.set([bytes[i], bytes[i], bytes[i], 255], 4 * i);
    context.putImageData(image, 0, 0);
    return canvas;
};
const decode = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
export default { render({ model, el }) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    el.classList.add("d2lite-lanes");
    el.setAttribute("role", "group");
    const head = make("div", el, { className: "head" });
    const words = make("span", head);
    const pause = make("button", head, { textContent: still ? "Play" : "Pause", title: "Stand still, or go on" });
    const next = make("button", head, { textContent: "Next part", title: "Stand still, and show the next part of the step" });
    const rows = make("div", el, { className: "rows" }), parts = make("div", el, { className: "parts" });
    const tests = make("div", el, { className: "tests" });
    let now = null, t = still ? 1 : 0, isPaused = still, isOver = false, lanes = [], names = [], shownTests = "", hub, width;
    const latest = () => JSON.parse(model.get("_step") || "null");
    const build = () => {
        now = latest();
        el.classList.toggle("empty", !now);  // not by its style: ipywidgets sets that a moment later
        if (!now) return;
        rows.replaceChildren(); parts.replaceChildren();
        lanes = now.lanes.map((lane) => {
            const row = make("div", rows, { className: "lane" });
            const who = make("span", row, { className: "who", textContent: lane.name });
            const shard = make("span", row, { className: "shard" });
            const bytes = decode(lane.images);
            for (let i = 0; i + 784 <= bytes.length; i += 784) picture(shard, bytes.subarray(i, i + 784), 26);
            make("span", shard, { className: "more", textContent: lane.more ? "+" + lane.more : "" });
            const track = make("span", row, { className: "track" });
            const blocks = lane.blocks.map(([kind, colour, from, to, time]) => {
                const place = { left: 100 * from + "%", width: 100 * (to - from) + "%" };
                const box = make("span", track, { className: "block", title: `${kind} ${time}` }, place);
                const fill = make("span", box, { className: "fill" }, { background: colour, width: "0%" });
                return { box, fill, text: make("span", box, { className: "text" }), words: [`${kind} ${time}`, kind, ""], from, to };
            });
            const way = make("span", row, { className: "way" });
            return { who, shard, blocks, way, dot: make("span", way, { className: "dot" }) };
        });
        hub = make("div", rows, { className: "hub", textContent: "Σ" });
        hub.style.display = lanes.length > 1 ? "" : "none";
        names = NAMES(now).map((text) => make("span", parts, { textContent: text }));
        tell();
        fit();
        draw();
    };
    const tell = () => {
        if (now) words.textContent = `Step ${now.step}: ${now.time}, recorded, and shown ${isOver ? "at a quarter of the speed" : "slowly"}`;
    };
    const fit = () => {  // the longest words that a block has room for, and the way from each lane to the sum
        width = el.clientWidth;
        for (const { box, text, words } of lanes.flatMap((lane) => lane.blocks))
            for (const some of words) { text.textContent = some; if (text.offsetWidth <= box.clientWidth) break; }
        for (const lane of lanes)
            lane.to = [hub.offsetLeft + hub.offsetWidth / 2 - lane.way.offsetLeft - 7,
                hub.offsetTop + hub.offsetHeight / 2 - lane.way.offsetTop - 7];
    };
    const draw = () => {
        const phase = t >= 1 ? 3 : STARTS.findIndex((start, i) => t >= start && t < STARTS[i + 1]);
        const inPhase = (i) => Math.min(1, Math.max(0, (t - STARTS[i]) / (STARTS[i + 1] - STARTS[i])));
        names.forEach((name, i) => name.classList.toggle("active", i === phase));
        for (const { who, shard, blocks, dot, to: [x, y] } of lanes) {
            shard.style.opacity = 0.25 + 0.75 * inPhase(0);
            const at = inPhase(1);
            for (const { fill, from, to } of blocks)
                fill.style.width = 100 * Math.min(1, Math.max(0, (at - from) / (to - from || 1))) + "%";
            const go = inPhase(2), there = go < 0.5 ? 2 * go : 2 - 2 * go;  // to the sum, and back with it
            dot.style.display = lanes.length > 1 && t >= STARTS[2] ? "" : "none";
            dot.style.transform = `translate(${there * x}px, ${there * y}px) scale(${go < 0.5 ? 1 : 1.5})`;
            who.classList.toggle("updated", phase === 3);
        }
    };
    const showTests = () => {
        const text = model.get("_tests");
        if (text === shownTests) return;
        shownTests = text;
        tests.replaceChildren();
        const found = JSON.parse(text || "[]");
        if (found.length) make("span", tests, { className: "who", textContent: "test images" });
        for (const { image, taken, isRight } of found) {
            const box = make("span", tests, { className: isRight ? "test right" : "test wrong" });
            picture(box, decode(image), 36);
            make("span", box, { textContent: `${isRight ? "✓" : "✗"} ${taken}` });
        }
    };
    const tick = setInterval(() => {
        if (!now || document.hidden || !el.isConnected) return;
        if (el.clientWidth !== width) { fit(); draw(); }
        if (isPaused) return;
        if (t >= 1) { if (latest().step !== now.step) { t = 0; build(); } return; }
        t = Math.min(1, t + (TICK_MS / 1000 / SECONDS) * (isOver ? 0.25 : 1));
        draw();
    }, TICK_MS);
    pause.onclick = () => { isPaused = !isPaused; pause.textContent = isPaused ? "Play" : "Pause"; };
    next.onclick = () => {
        isPaused = true; pause.textContent = "Play";
        if (t >= 1) { t = 0; build(); }
        t = STOPS.find((stop) => stop > t + 1e-6) ?? 1;
        draw();
    };
    rows.onmouseenter = () => { isOver = true; tell(); };
    rows.onmouseleave = () => { isOver = false; tell(); };
    const arrived = () => {
        if (!now || (still && isPaused)) { build(); if (still) { t = 1; draw(); } }
    };
    const describe = () => el.setAttribute("aria-label", model.get("alternative_text"));
    model.on("change:_step", arrived);
    model.on("change:_tests", showTests);
    model.on("change:alternative_text", describe);
    build(); showTests(); describe();
    return () => {
        clearInterval(tick);
        model.off("change:_step", arrived);
        model.off("change:_tests", showTests);
        model.off("change:alternative_text", describe);
    };
} };
