// Browsers start no worker for a page that was opened from a disk, and the search is one.
// There a hidden frame stands for it: same messages, same script.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.appendChild(frame)
      const inner = frame.contentWindow
      this.frame = frame
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inner.importScripts = (...urls) => Promise.all(urls.map(each => load(inner, each)))
      this.postMessage = data => waiting.push(data)
      load(inner, url).then(() => {
        this.postMessage = data => inner.dispatchEvent(new inner.MessageEvent("message", { data }))
        waiting.forEach(data => this.postMessage(data))
      })
    }

    set onmessage(listener) {
      this.addEventListener("message", listener)
    }

    terminate() {
      this.frame.remove()
    }
  }

  const load = (inner, url) => new Promise((loaded, failed) => {
    const script = inner.document.createElement("script")
    script.src = new URL(url, location.href)
    script.onload = loaded
    script.onerror = failed
    inner.document.documentElement.appendChild(script)
  })
}
