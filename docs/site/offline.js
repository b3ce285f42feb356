// A page that is opened from a file may start no worker. The search then runs in a hidden frame, to which messages are
// handed as a worker would get them.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.documentElement.appendChild(document.createElement("iframe"));
      this.frame.hidden = true;
      const inner = this.frame.contentWindow;
      inner.document.open();
      inner.document.close();
      inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inner.document.createElement("script");
      script.src = address;
      this.ready = new Promise((done) => { script.onload = done; });
      inner.document.documentElement.append(script);
    }

    postMessage(data) {
      const { contentWindow } = this.frame;
      this.ready.then(() => contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() { this.frame.remove(); }
  };
}
