// Search runs in a Web Worker, which browsers refuse to pages from file://. There the same script runs in a hidden
// frame. The name of this file keeps the plugin "offline" from loading such a script from another host.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.scope = frame.contentWindow;
      const load = (source) =>
        new Promise((resolve, reject) => {
          const script = frame.contentDocument.createElement("script");
          Object.assign(script, { src: source, onload: resolve, onerror: reject });
          frame.contentDocument.documentElement.append(script);
        });
      this.scope.importScripts = (...sources) => sources.reduce((done, next) => done.then(() => load(next)), Promise.resolve());
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      // The index is a global of the page, as the plugin "offline" stores it.
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.scope.frameElement.remove();
    }
  };
}
