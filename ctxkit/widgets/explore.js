/** The reader of one session: its calls as a chart, what a call was sent as a list, one message to read. */
function explore({ model, el }) {
  let data = null, top = 1, head = null, hits = [], measured = true, wait = 0, base = "", heard = "";
  const open = () => { if (model.get("data") !== data) { data = model.get("data"); fresh(); } };
  const view = {
    high: 190,
    spec() {
      data = model.get("data");
      top = 1.06 * data.top;
      const [x, y] = data.line;
      return { x: { title: "call", range: [-0.5, Math.max(1, data.calls - 1) + 0.5] }, y: { title: "prompt tokens", range: [0, top] }, marks: data.cuts,
        lines: [{ name: "prompt", x, y, ink: INK[0], dash: "solid", hover: x.map((c, i) => `call ${num(c)}<br>${y[i] == null ? "size unknown" : num(y[i]) + " tokens"}`) }] };
    },
    draw(s) {
      const x = s.X(model.get("call")), low = s.lower;
      set(cursor, { d: `M${x.toFixed(1)} ${s.upper}V${low}` });
      set(found, { d: hits.map(c => `M${s.X(c).toFixed(1)} ${low - 9}v9`).join("") });
      const across = data.limit && data.limit <= top;
      set(limit, { d: across ? `M${s.left} ${s.Y(data.limit).toFixed(1)}H${s.right()}` : "" });
      set(named, { x: s.left + 4, y: across ? s.Y(data.limit) + 13 : -99 }); say(named, across ? `limit ${num(data.limit)}` : "");
      turn.max = Math.max(0, data.calls - 1); turn.disabled = data.calls < 2; turn.value = model.get("call");
      const from = s.X(0), to = s.X(Math.max(1, data.calls - 1));
      turn.style.marginLeft = Math.max(0, from - 8) + "px"; turn.style.width = Math.max(40, to - from + 16) + "px";
      field(model.get("call"));
    },
    clicked(px, _, s) { go(Math.round((px - s.X(0)) / (s.X(1) - s.X(0)))); },
  };
  const s = stage(model, el, "prompt tokens of each call; a click goes to the call", view);
  const limit = node("path", { stroke: GREY, "stroke-dasharray": "4 4", fill: "none" }, s.marks), found = node("path", { stroke: WARN, "stroke-width": 2 }, s.marks);
  const cursor = node("path", { stroke: STOP, "stroke-width": 2, fill: "none" }, s.marks), named = node("text", { class: "lab" }, s.marks);
  const go = c => { const to = Math.max(0, Math.min(data.calls - 1, Math.round(c))); if (data.calls) { s.put("call", to); } };
  const turn = make("input", "turn"); turn.type = "range"; turn.step = 1; turn.min = 0; turn.name = "turn"; turn.setAttribute("aria-label", "call");
  s.note.before(turn);
  turn.addEventListener("input", () => go(+turn.value));
  turn.addEventListener("keydown", e => {                          // a lab prevents what the browser would do
    const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -data.calls, End: data.calls }[e.key];
    if (by) { e.preventDefault(); e.stopPropagation(); go(model.get("call") + by); }
  });
  const field = s.field("call", "call", { low: 0, by: 1, set: go });

  // -- the tree of subagents, what fills the prompt, what is asked for ----------------------------------------------
  const kin = make("details", "tree"), fill = make("div", "fill", s.below), names = make("div", "names", s.below);
  s.bar.before(kin);
  fill.setAttribute("role", "img"); fill.setAttribute("aria-label", "what fills the prompt");
  const ask = make("div", "bar", s.below), want = {};
  const words = make("input", "", ask); words.type = "search"; words.name = "words"; words.placeholder = "search the messages"; words.setAttribute("aria-label", "search the messages");
  const tick = (key, label) => {
    const l = make("label", "", ask), f = make("input", "", l); f.type = "checkbox"; f.name = key; l.append(" " + label);
    f.addEventListener("change", () => { want[key] = f.checked; soon(); });
    return f;
  };
  const pick = (key, label, first) => {
    const l = make("label", "", ask, label + " "), f = make("select", "", l); f.name = key;
    make("option", "", f, first).value = "";
    f.addEventListener("change", () => { want[key] = f.value; soon(); });
    return f;
  };
  const ticks = { regex: tick("regex", "regular expression"), errors: tick("errors", "failed only"), whole: tick("whole", "whole session") };
  const picks = { role: pick("role", "role", "any"), tool: pick("tool", "tool", "any"), file: pick("file", "file", "any"), order: pick("order", "order", "largest first") };
  make("option", "", picks.order, "as sent").value = "sent";
  words.addEventListener("input", () => { want.words = words.value; clearTimeout(wait); wait = setTimeout(soon, 250); });
  const count = make("div", "soft", s.below), two = make("div", "two", s.below);
  count.setAttribute("role", "status");
  const list = roll(two, { label: "messages", id: "m" + Math.random().toString(36).slice(2) + "-", piece: n => request(n * PIECE), chosen: read,
    fill(line, [, tokens, marks, name, text, , number]) {
      if (marks.includes("✗")) line.classList.add("bad");
      make("span", "n", line, number); make("span", "n", line, (tokens == null ? "" : num(tokens)) + (marks.includes("~") ? "~" : ""));
      make("span", "", line, (marks.includes("✗") ? "✗ " : "") + name); make("span", "", line, text).title = text;
    } });
  const reading = make("div", "read", two), title = make("div", "soft", reading), jump = make("button", "", reading, ""), text = make("pre", "", reading);
  jump.type = "button"; jump.hidden = true; text.tabIndex = 0; jump.style.alignSelf = "flex-start";
  jump.addEventListener("click", () => { ticks.whole.checked = want.whole = false; soon(); });

  const place = () => want.whole ? "all" : String(model.get("call"));
  const key = () => [place(), want.order || "largest", want.role || "", want.tool || "", want.file || "", want.errors ? 1 : "", want.regex ? 1 : "", want.words || ""].join("|");
  function request(from) {
    const at = `${base}|${from}`, { order, ...rest } = want;
    model.send({ kind: "rows", at, key: at, call: model.get("call"), from, ...rest, largest: order !== "sent" });
  }
  function soon() {                                                // another list: what stands stays until it comes
    const now = key();
    if (now !== base) { base = now; clearTimeout(soon.due); soon.due = setTimeout(() => request(0), 40); }
  }
  function listed(told, from) {
    if (!from) {
      if (told.head && told.head.call === model.get("call")) head = told.head;
      hits = told.marks || []; measured = told.measured; heard = base;
      list.anew(told.total);
      count.textContent = told.error || [told.total === told.of ? many(told.of, "message") : `${num(told.total)} of ${many(told.of, "message")}`, measured ? "" : "sizes are being worked out", told.said].filter(Boolean).join(" · ");
    }
    if (told.rows) list.put(from / PIECE, told.rows);
    if (!from) { headed(); list.choose(0); if (!told.total) { title.textContent = told.error || "No message."; text.textContent = ""; jump.hidden = true; } s.soon(); }
  }
  function headed() {
    if (!head) return;
    s.said.textContent = head.told;
    const whole = head.groups.reduce((n, g) => n + g[1], 0) || 1;
    fill.replaceChildren(); names.replaceChildren(); fill.hidden = !head.groups.length;
    for (const [name, n, ink] of head.groups) {
      const block = make("div", "", fill); block.style.cssText = `width:${(100 * n / whole).toFixed(2)}%;background:${ink}`; block.title = `${name}: ${num(n)}`;
      const one = make("span", "", names), dot = make("i", "", one); dot.style.background = ink; one.append(`${name} ${num(n)} (${per(n / whole)})`);
    }
  }
  function read(row) {
    const at = `${place()}|${row[0]}`;
    if (want.whole && row[5] != null && row[5] !== model.get("call")) { s.put("call", row[5]); }
    jump.hidden = !(want.whole && row[5] != null); jump.textContent = `what call ${num(row[5] ?? 0)} was sent`;
    read.of = at;
    model.send({ kind: "text", at, key: at, call: model.get("call"), row: row[0], whole: !!want.whole });
  }
  function fresh() {
    head = null; hits = [];
    s.note.textContent = data.notes.map(n => `Note: ${n}`).join(" ");
    kin.hidden = !data.tree.length; kin.replaceChildren();
    make("summary", "", kin, `${data.title} · ${many(Math.max(0, data.tree.length - 1), "subagent")}`);
    data.tree.forEach(([depth, name, told], i) => {
      const b = make("button", "", kin, `${name} · ${told}`); b.type = "button"; b.style.marginLeft = 18 * depth + "px";
      if (i === data.open) b.setAttribute("aria-current", "true");
      b.addEventListener("click", () => model.send({ kind: "open", at: i, to: i, key: String(i) }));
    });
    for (const f of [picks.role, picks.tool, picks.file]) { while (f.options.length > 1) f.remove(1); f.value = ""; want[f.name] = ""; }
    base = key();
    if (data.first.head?.call === model.get("call") && Object.values(want).every(v => !v)) listed(data.first, 0); else request(0);
    if (!data.first.measured) model.send({ kind: "measure", at: "" });
    setTimeout(() => model.send({ kind: "choices", at: "", key: "" }), 50);
  }
  function offered(told) {
    for (const [name, f] of [["role", picks.role], ["tool", picks.tool], ["file", picks.file]]) {
      const was = f.value;
      while (f.options.length > 1) f.remove(1);
      for (const [value, n] of told[name] || []) make("option", "", f, `${value} (${num(n)})`).value = value;
      f.value = was; if (f.selectedIndex < 0) f.value = "";
      f.parentElement.hidden = f.options.length < 3 && !f.value;
    }
    ticks.errors.parentElement.hidden = !(told.errors?.[0]?.[1]) && !ticks.errors.checked;
  }
  s.on("msg:custom", told => {
    if (told.kind === "rows") { const cut = String(told.key).lastIndexOf("|"); if (String(told.key).slice(0, cut) === base) listed(told, +String(told.key).slice(cut + 1)); }
    else if (told.kind === "text" && told.key === read.of) { title.textContent = told.head || told.error; marked(text, told.text || "", want.regex ? "" : want.words); }
    else if (told.kind === "choices" && told.role) offered(told);
    else if (told.kind === "measured") { base = ""; soon(); }
  });
  s.on("change:call", () => { s.soon(); if (!want.whole) soon(); });
  s.on("change:data", open);
  open();
  return s.end;
}
