# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Looks at the built site as readers' programs do. crawl() follows the links of its HTML; in_browser() opens pages in
headless Chromium, in windows of given widths, with scripts and without.
"""
import html.parser
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

ATTRIBUTES = {"a": "href", "link": "href", "img": "src", "script": "src", "source": "src", "iframe": "src", "object": "data"}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.targets, self.ids = [], set()  # (tag, target, line)
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("id", "name"):
            if attributes.get(name) and (name == "id" or tag == "a"):
                self.ids.add(attributes[name])
        target = attributes.get(ATTRIBUTES.get(tag, ""))
        if target:
            self.targets.append((tag, target, self.getpos()[0]))


def crawl(folder):
    """Problems of the site in a folder: links and pictures that lead nowhere, anchors that are not there, pages that no
    link leads to. Also how many pages and links there are. What another host has is not asked for."""
    folder = pathlib.Path(folder).resolve()
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in sorted(folder.rglob("*.html"))}
    problems, count, external = [], 0, 0
    links = {p: set() for p in pages}
    for path, page in pages.items():
        for tag, target, line in page.targets:
            where = f"{path.relative_to(folder)}:{line}"
            parts = urllib.parse.urlsplit(target)
            if parts.scheme or target.startswith("//"):
                external += 1
                if tag in ("img", "script", "iframe", "object") or (tag == "link" and "fonts" in target):
                    problems.append(f"{where}: <{tag}> needs another host: {target}")
                continue
            count += 1
            name = urllib.parse.unquote(parts.path)
            file = path if not name else (folder / name.lstrip("/") if name.startswith("/") else path.parent / name).resolve()
            if file.is_dir() or name == ".":
                file = file / "index.html"
            if not file.is_file() or not file.is_relative_to(folder):
                problems.append(f"{where}: <{tag}> leads nowhere: {target}")
                continue
            if file in pages:
                links[path].add(file)
                fragment = urllib.parse.unquote(parts.fragment)
                if fragment and fragment not in pages[file].ids:
                    problems.append(f"{where}: no place of that name: {target}")
    first = folder / "index.html"
    reached, waiting = {first}, [first]
    while waiting:
        for other in links.get(waiting.pop(), ()):
            if other not in reached:
                reached.add(other)
                waiting.append(other)
    for path in pages:
        if path not in reached and path.name != "404.html":
            problems.append(f"{path.relative_to(folder)}: no link leads to this page")
    return problems, len(pages), count, external


# ---------------------------------------------------------------------------------------------- in a browser
# One page of our own opens the others in a frame, one after the other; a frame is a window to the page in it. Without
# scripts it is a sandbox. What is wider than the window and in no box that scrolls is named.
HARNESS = """<!doctype html><meta charset=utf-8><body><script>
const work = %s;
const seen = [];
function load(page, width, scripts) {
  return new Promise(done => {
    const frame = document.createElement('iframe');
    frame.width = width; frame.height = 900; frame.style.border = 0;
    if (!scripts) frame.setAttribute('sandbox', 'allow-same-origin');
    const late = setTimeout(() => { frame.remove(); done({problem: 'did not load'}); }, 60000);
    frame.onload = () => setTimeout(() => {
      clearTimeout(late);
      const d = frame.contentDocument, found = {};
      if (!d || !d.body) { frame.remove(); return done({problem: 'cannot be looked into'}); }
      const article = d.querySelector('article') || d.body;
      found.text = article.innerText.replace(/\\s+/g, ' ').trim();
      const wide = d.scrollingElement.scrollWidth;
      if (wide > width) {
        const out = [...d.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > width + 1 && e.children.length == 0);
        found.problem = 'is ' + wide + ' px wide' + (out.length ? ': ' + (out[0].textContent.trim() || out[0].outerHTML).slice(0, 60) : '');
      }
      const broken = [...d.images].filter(i => i.complete && i.naturalWidth == 0);
      if (broken.length) found.problem = 'does not show ' + broken[0].src;
      frame.remove();
      done(found);
    }, scripts ? 30 : 0);
    frame.src = page;
    document.body.append(frame);
  });
}
(async () => {
  for (const page of work.pages) {
    for (const width of work.widths) {
      const plain = await load(page, width, false);
      if (plain.problem) seen.push({page, width, problem: plain.problem + ' (without scripts)'});
      const full = await load(page, width, true);
      if (full.problem) seen.push({page, width, problem: full.problem});
      if (!plain.text) seen.push({page, width, problem: 'has no text without scripts'});
      else if (plain.text != full.text) {
        let i = 0; while (plain.text[i] == full.text[i]) ++i;
        seen.push({page, width, problem: 'says something else without scripts, at: ' + full.text.slice(Math.max(0, i - 20), i + 40)});
      }
    }
    await fetch('/seen', {method: 'POST', body: JSON.stringify({page, seen: seen.splice(0)})});
  }
  await fetch('/end', {method: 'POST', body: '{}'});
})();
</script>"""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        """A frame that is taken away ends what it still loads."""
        if not isinstance(sys.exc_info()[1], (BrokenPipeError, ConnectionResetError)):
            super().handle_error(request, address)


def handler_of(folder, harness, said):
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=str(folder))

        def do_GET(self):
            if self.path != "/harness":
                return super().do_GET()
            body = harness.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()
            if self.path == "/end":
                said["end"].set()
            else:
                found = json.loads(body)
                said["done"].append(found["page"])
                said["seen"] += found["seen"]

        def log_message(self, *_):
            pass

    return Handler


def browser():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def in_browser(folder, pages, widths=(400, 1280), seconds=600):
    """Problems of pages (places below the folder) in a window of each width, and how many pages were looked at."""
    said = {"end": threading.Event(), "seen": [], "done": []}
    harness = HARNESS % json.dumps({"pages": ["/" + p for p in pages], "widths": list(widths)})
    server = Server(("127.0.0.1", 0), handler_of(folder, harness, said))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        command = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                   "--window-size=1400,1000", f"--user-data-dir={home}", "--remote-debugging-port=0",
                   f"http://127.0.0.1:{server.server_port}/harness"]
        with open(pathlib.Path(home) / "log", "wb") as log:
            started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + seconds
            while not said["end"].wait(0.2) and started.poll() is None and time.monotonic() < deadline:
                pass
        finally:
            try:
                os.killpg(started.pid, 9)  # its own session: it and the processes it started
            except ProcessLookupError:
                pass
            started.wait()
            server.shutdown()
            server.server_close()
        log = (pathlib.Path(home) / "log").read_text(errors="replace").strip().splitlines()
    problems = [f"{s['page'].lstrip('/')} at {s['width']} px: {s['problem']}" for s in said["seen"]]
    if not said["end"].is_set():
        why = "ended" if started.returncode not in (None, -9) else f"was not ready after {seconds} s"
        problems.append(f"the browser {why}, with {len(said['done'])} of {len(pages)} pages done: {' | '.join(log[-2:])[:300]}")
    return problems, len(said["done"])
