function render({ model, el }) {
  const all = () => model.get("data").sessions;                    // each: name, calls, tokens[], messages[], held[[call, why]], n
  const chosen = () => Math.min(model.get("session"), all().length - 1);
  const shares = one => model.get("by") === "tokens" ? one.tokens : one.messages;
  const closes = one => find_guard_closing(shares(one), model.get("min_savings"), model.get("window"));
  const high = () => {
    let most = model.get("min_savings");
    for (const y of shares(all()[chosen()])) if (y > most) most = y;
    return Math.max(0.25, 1.25 * most);
  };
  let shown = "", asked = "", top = 1;
  const view = {
    empty: () => !all().some(one => one.calls.length),
    spec() {
      const one = all()[chosen()];
      shown = `${chosen()}/${model.get("by")}`;
      if (!one) return { x: { title: "call", range: [0, 1] }, y: { title: "share saved", range: [0, 1], share: true }, lines: [] };
      const y = shares(one), low = y.reduce((a, v) => v < a ? v : a, 0), kept = thinned(y.map(v => v ?? 0), MAX_POINTS);
      const hover = kept.map(i => `compaction ${num(i)}, ${one.unit} ${num(one.calls[i])}<br>` + (y[i] == null ? "share unknown" : `saved ${per(y[i])} of ${model.get("by")}`));
      const end = Math.max(one.n, ...one.calls.slice(-1), 1);
      top = high();
      return { x: { title: one.unit, range: s.beside(0, end) }, y: { title: `share of ${model.get("by")} saved`, range: [Math.max(low * 1.1, -1), top], share: true },
        lines: [{ name: "saved", x: kept.map(i => one.calls[i]), y: kept.map(i => y[i]), hover, ink: INK[0], dash: "solid" }] };
    },
    draw(s) {
      const sessions = all(), one = sessions[chosen()], least = model.get("min_savings"), window = model.get("window");
      if (one && shown !== `${chosen()}/${model.get("by")}`) { s.anew(); return; }
      s.handles.min_savings.place(least, true);
      fields.min_savings(least); fields.window(window); fields.by(model.get("by")); fields.session?.(chosen());
      const pays = [], low = [], held = [], k = one ? closes(one) : null;
      (one ? shares(one) : []).forEach((y, i) => {
        if (y == null) return;
        const at = "M" + s.X(one.calls[i]).toFixed(0) + " " + s.Y(y).toFixed(0);
        if (is_saving_too_small(y, least)) low.push(at + "m-4-4l8 8m0-8l-8 8"); else pays.push(at + "h0");
      });
      for (const [call] of one?.held || []) held.push("M" + s.X(call).toFixed(0) + " " + s.Y(0).toFixed(0) + "m-4 0l4-4l4 4l-4 4z");
      set(paid, { d: pays.join("") }); set(short_, { d: low.join("") }); set(back, { d: held.join("") });
      const x = k == null ? s.right() : Math.max(s.left, Math.min(s.right(), s.X(one.calls[k])));
      set(shut, { x, y: s.upper, width: Math.max(0, s.right() - x), height: s.lower - s.upper });
      shut.style.display = k == null ? "none" : "";
      const room = s.right() - x > 110;
      set(word, { x: room ? x + 5 : x - 5, y: s.upper + 12, "text-anchor": room ? "start" : "end" });
      word.textContent = k == null ? "" : "guard closed";
      s.said.textContent = one ? verdict(one, k, low.length) : "Nothing was compacted in what was given.";
      s.note.textContent = one ? "Dots pay, crosses saved too little, diamonds were suppressed by the rules' own guards; shaded: no compaction any more." : model.get("data").note || "";
      if (sessions.length > 1) {
        const shut_ = sessions.map(each => [each, closes(each)]), n = shut_.filter(p => p[1] != null).length;
        tabled(table, `The guard closes in ${num(n)} of ${num(sessions.length)} sessions${sessions.length > 12 ? "; the first 12" : ""}.`, ["session", "compactions", "too little", "guard"],
          shut_.slice(0, 12).map(([each, at]) => [each.name, num(each.calls.length), num(shares(each).filter(v => is_saving_too_small(v, least)).length),
            at == null ? "stays open" : `closes at compaction ${num(at)}`]));
      }
      priced(one, k);
    },
  };
  function verdict(one, k, low) {
    const n = one.calls.length, unknown = shares(one).filter(v => v == null).length, later = k == null ? 0 : n - 1 - k;
    if (!n) return one.hides ? "The log cannot tell of compactions." : "Nothing was compacted.";
    return `${many(n, "compaction")}, ${num(low)} saved less than ${per(model.get("min_savings"))} of ${model.get("by")}`
      + (unknown ? `, ${num(unknown)} unknown` : "") + `; a guard of ${num(model.get("window"))} in a row `
      + (is_guard_off(model.get("min_savings"), model.get("window")) ? "is off." : k == null ? "stays open." : `closes at compaction ${num(k)}, ${one.unit} ${num(one.calls[k])}`
        + (later ? `: ${many(later, "later one")} would not have happened.` : ", the last."));
  }
  function priced(one, k) {
    if (!one || !one.calls.length) { dollars.textContent = ""; return; }
    if (one.why) { dollars.textContent = one.why; return; }
    const none = model.get("usd")[`${chosen()}/none`], then = k == null ? none : model.get("usd")[`${chosen()}/${k}`];
    if (none === undefined || then === undefined) {
      const key = `${chosen()}/${k}`;
      dollars.textContent = "Dollars: asking the kernel …";
      if (asked !== key) { asked = key; model.send({ kind: "usd", session: chosen(), at: k }); }
      return;
    }
    asked = "";
    dollars.textContent = none == null || then == null ? "The replay has no price." : k == null ? `The replay costs ${usd(none)}.`
      : `With this guard the replay costs ${usd(then)} instead of ${usd(none)}: ${then <= none ? `${usd(none - then)} saved` : `${usd(then - none)} more, for the prompts stay large`}.`;
  }
  const s = stage(model, el, "share that each compaction saved, with the least that a guard asks for", view);
  const shut = node("rect", { fill: STOP, "fill-opacity": 0.12 }, s.marks), word = node("text", { class: "lab" }, s.marks);
  const paid = node("path", { class: "dots", stroke: INK[0], "stroke-width": 8 }, s.marks), short_ = node("path", { class: "dots", stroke: STOP, "stroke-width": 2 }, s.marks);
  const back = node("path", { class: "dots", stroke: INK[5], "stroke-width": 1.6 }, s.marks), fields = {};
  const least = (v, done) => {
    s.put("min_savings", Math.round(1000 * Math.min(1, Math.max(0, v))) / 1000);
    if (done && all().length && Math.abs(high() - top) > 1e-6) s.anew();  // the axis grows on release
  };
  s.handle("min_savings", { word: "minimum savings", ink: STOP, low: 0, high: () => 1, step: () => 0.01, set: least, text: v => v > 0 ? `least ${per(v)}` : "least: off" });
  fields.min_savings = s.field("min_savings", "minimum savings", { low: 0, most: 100, unit: 0.01, by: "any", after: "%", set: least });
  fields.window = s.field("window", "in a row", { low: 0, by: 1, set: v => s.put("window", Math.max(0, Math.round(v))) });
  fields.by = s.choice("by", "by", [["tokens", "tokens"], ["messages", "messages"]]);
  if (all().length > 1) fields.session = s.choice("session", "session", all().map((one, i) => [i, one.name]));
  const dollars = make("div", "said", s.below), table = make("table", "", s.below);
  for (const key of ["min_savings", "window", "by", "session", "usd"]) s.on("change:" + key, () => s.soon());
  return s.end;
}
