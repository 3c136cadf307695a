#!/usr/bin/env python3
"""Opens pages of tutti schedule in headless Chromium: `page_test.py TUTTI CHROMIUM [SCREENSHOT_FOLDER]`.

Speaks the DevTools protocol over a websocket of its own, so it needs nothing but Python. Checks that boxes are painted,
that pointing at a task shows what it is, that wheel, drag and double click change what is shown, that two schedules
share the time, that light and dark differ, and that there was no console error and no request for anything else.
"""
import base64
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
         "--no-first-run", "--disable-extensions", "--disable-component-update", "--hide-scrollbars",
         "--disable-dev-shm-usage", "--window-size=1280,900", "--remote-debugging-port=0"]


class Socket:
    """A websocket client: text messages only, which is all that DevTools speaks."""

    def __init__(self, url):
        host, path = url.removeprefix("ws://").split("/", 1)
        name, port = host.split(":")
        self.socket = socket.create_connection((name, int(port)), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.exactly(1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(head.decode())

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise RuntimeError("the browser has gone")
            data += part
        return data

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = len(data)
        length = struct.pack("!B", 0x80 | size) if size < 126 else \
            struct.pack("!BH", 0x80 | 126, size) if size < 65536 else struct.pack("!BQ", 0x80 | 127, size)
        self.socket.sendall(b"\x81" + length + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        text = b""
        while True:
            first, size = self.exactly(2)
            size &= 0x7f
            if size >= 126:
                size = struct.unpack("!H" if size == 126 else "!Q", self.exactly(2 if size == 126 else 8))[0]
            data = self.exactly(size)
            if first & 0x0f in (0, 1):
                text += data
                if first & 0x80:
                    return text.decode()


class Browser:
    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen([program, *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.connect()
        except BaseException:
            self.close()
            raise

    def connect(self):
        port = Path(self.folder.name, "DevToolsActivePort")
        deadline = time.monotonic() + 60
        while not (port.exists() and port.read_text().count("\n")):
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError("the browser does not start")
            time.sleep(0.05)
        with urllib.request.urlopen(f"http://127.0.0.1:{port.read_text().splitlines()[0]}/json/list") as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        self.socket, self.count, self.events = Socket(pages[0]["webSocketDebuggerUrl"]), 0, []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def call(self, method, **parameters):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def open(self, path):
        self.events.clear()
        self.call("Page.navigate", url=Path(path).as_uri())
        deadline = time.monotonic() + 30
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{path} does not load")
            self.evaluate("1")
            time.sleep(0.02)
        self.painted()

    def painted(self):
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.painted()

    def complaints(self):
        list = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                list.append(event["params"]["exceptionDetails"])
            elif event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning", "assert"):
                list.append(event["params"])
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                list.append(event["params"]["entry"])
        return list

    def requests(self):
        return [event["params"]["request"]["url"] for event in self.events
                if event["method"] == "Network.requestWillBeSent"]

    def screenshot(self, path):
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


class PageTest(unittest.TestCase):
    tutti = chromium = shots = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.browser = Browser(cls.chromium)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def open(self, name, *words):
        page = Path(self.folder.name, name + ".html")
        subprocess.run([self.tutti, "schedule", *words, "--html", str(page)], check=True, stdout=subprocess.DEVNULL)
        self.browser.mouse("mouseMoved", 1, 1)
        self.browser.open(page)
        return page

    def tearDown(self):
        self.assertEqual(self.browser.complaints(), [])
        self.assertTrue(all(url.startswith(("file:", "data:")) for url in self.browser.requests()))

    def shoot(self, name):
        if self.shots:
            self.browser.screenshot(Path(self.shots, name + ".png"))

    # Where on the screen the middle of a box lies; `panel` and `rank` say whose.
    def place(self, panel, rank, box):
        return self.browser.evaluate(f"""(() => {{
            const chart = document.querySelectorAll("canvas.chart")[{panel}], place = chart.getBoundingClientRect();
            const box = data.timelines[{panel}].rows[{rank}].boxes[{box}];
            const end = Math.min(box.end, view.to), start = Math.max(box.start, view.from);
            return [place.left + toX(chart, (start + end) / 2), place.top + panels[{panel}].top({rank}) + 5];
        }})()""")

    # The colour of the page at a place, from the canvas itself.
    def colour(self, panel, x, y):
        return self.browser.evaluate(f"""(() => {{
            const chart = document.querySelectorAll("canvas.chart")[{panel}], place = chart.getBoundingClientRect();
            const scale = chart.width / place.width;
            const copy = new OffscreenCanvas(1, 1).getContext("2d", {{willReadFrequently: true}});
            copy.drawImage(chart, ({x} - place.left) * scale, ({y} - place.top) * scale, 1, 1, 0, 0, 1, 1);
            const pixel = copy.getImageData(0, 0, 1, 1);
            return "#" + [...pixel.data.slice(0, 3)].map(part => part.toString(16).padStart(2, "0")).join("");
        }})()""")

    def shown(self):
        return self.browser.evaluate("[view.from, view.to]")

    def test_boxes_are_painted_in_the_colours_of_their_kinds(self):
        self.open("zb-v", "zb-v", "--pipe", "4", "--micro-batches", "8")
        self.shoot("zb-v")
        for rank in range(4):
            for box in (0, 9, 20, 47):
                kind, other, wanted = self.browser.evaluate(f"""(() => {{
                    const box = data.timelines[0].rows[{rank}].boxes[{box}];
                    return [box.kind, isOther(box), kinds[box.kind].colours[isOther(box)]]; }})()""")
                # Above the number, near the upper edge.
                x, y = self.place(0, rank, box)
                self.assertEqual(self.colour(0, x, y), wanted, f"rank {rank} {kind} {other}")

    def test_pointing_at_a_task_tells_what_it_is(self):
        self.open("1f1b", "1f1b", "--pipe", "2", "--micro-batches", "3", "--costs", "f=1,b=2")
        visible = 'getComputedStyle(document.getElementById("tooltip")).visibility'
        text = 'document.getElementById("tooltip").innerText.replace(/\\s+/g, " ")'
        self.assertEqual(self.browser.evaluate(visible), "hidden")
        self.browser.mouse("mouseMoved", *self.place(0, 0, 4))  # the backward of micro-batch 1: 7 to 9
        self.shoot("hover")
        self.assertEqual(self.browser.evaluate(visible), "visible")
        self.assertEqual(self.browser.evaluate(text).strip(),
                         "BW1: backward rank 0 stage 0 micro-batch 1 model replica 0 start 7 end 9 duration 2 activations held 2")
        x, y = self.place(0, 0, 2)
        chart = 'document.querySelector("canvas.chart")'
        x = self.browser.evaluate(f"{chart}.getBoundingClientRect().left + toX({chart}, 3)")
        self.browser.mouse("mouseMoved", x, y)  # nothing to do from 2 to 4
        self.assertIn("waiting: warm-up rank 0 start 2 end 4", self.browser.evaluate(text))
        self.browser.mouse("mouseMoved", x, y + 30)  # the curve
        self.assertIn("activations held 2", self.browser.evaluate(text))
        self.browser.mouse("mouseMoved", 640, 30)
        self.assertEqual(self.browser.evaluate(visible), "hidden")

    def test_wheel_drag_and_double_click_change_what_is_shown(self):
        self.open("gpipe", "gpipe", "--pipe", "4", "--micro-batches", "8")
        whole = self.shown()
        x, y = self.place(0, 1, 5)
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)
        near = self.shown()
        self.assertLess(near[1] - near[0], 0.7 * (whole[1] - whole[0]))
        self.browser.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.browser.mouse("mouseMoved", x - 200, y, button="left")
        self.browser.mouse("mouseReleased", x - 200, y, button="left", clickCount=1)
        moved = self.shown()
        self.assertAlmostEqual(moved[1] - moved[0], near[1] - near[0])
        self.assertGreater(moved[0], near[0])
        self.shoot("zoomed")
        for count in (1, 2):
            self.browser.mouse("mousePressed", x, y, button="left", clickCount=count)
            self.browser.mouse("mouseReleased", x, y, button="left", clickCount=count)
        self.assertEqual(self.shown(), whole)
        top = self.browser.evaluate('document.getElementById("axis").getBoundingClientRect().top') + 10
        self.browser.mouse("mousePressed", 400, top, button="left", clickCount=1)
        self.browser.mouse("mouseMoved", 700, top, button="left")
        self.browser.mouse("mouseReleased", 700, top, button="left", clickCount=1)
        part = self.shown()
        self.assertAlmostEqual((part[1] - part[0]) / whole[1], 300 / self.browser.evaluate('span(axis)'), places=6)

    def test_two_schedules_share_the_time_and_fit_the_window(self):
        self.open("pair", "1f1b", "--against", "shifted-critical-path", "--pipe", "4", "--micro-batches", "8",
                  "--costs", "f=1,b=2,r=1")
        self.shoot("pair")
        self.assertEqual(self.browser.evaluate('document.querySelectorAll("canvas.chart").length'), 2)
        self.assertEqual(self.browser.evaluate("document.title"), "1f1b and shifted-critical-path")
        headers = self.browser.evaluate('[...document.querySelectorAll("header")].map(h => h.innerText.replace(/\\s+/g, " "))')
        self.assertIn("time 44", headers[0])
        self.assertIn("time 38", headers[1])
        self.assertIn("speed 1.16", headers[1])
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 1280)
        # At one time both are at one place.
        self.assertEqual(*self.browser.evaluate("panels.map(panel => toX(panel.canvas, 30))"))

    def test_light_and_dark_follow_the_reader(self):
        self.open("chimera", "chimera", "--pipe", "4", "--micro-batches", "8")
        background = "getComputedStyle(document.body).backgroundColor"
        seen = []
        for scheme in ("light", "dark"):
            self.browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            self.browser.painted()
            self.shoot("chimera-" + scheme)
            seen.append(self.browser.evaluate(background))
        self.browser.call("Emulation.setEmulatedMedia", features=[])
        self.assertNotEqual(*seen)

    def test_a_large_schedule_is_drawn_with_few_calls_per_box(self):
        self.open("large", "interleaved", "--pipe", "32", "--micro-batches", "128")
        calls = self.browser.evaluate("""(() => {
            const context = CanvasRenderingContext2D.prototype, whole = {};
            let calls = 0;
            for (const name of Object.getOwnPropertyNames(context)) {
                const method = Object.getOwnPropertyDescriptor(context, name);
                if (typeof method.value !== "function") continue;
                whole[name] = method.value;
                context[name] = function (...values) { ++calls; return whole[name].apply(this, values); };
            }
            drawAxis();
            for (const panel of panels) panel.draw();
            Object.assign(context, whole);
            return calls; })()""")
        self.assertGreater(calls, 1000)
        self.assertLess(calls, 2 * 16384)  # boxes
        self.shoot("large")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PageTest.tutti, PageTest.chromium = sys.argv[1:3]
    PageTest.shots = sys.argv[3] if len(sys.argv) > 3 else None
    unittest.main(argv=sys.argv[:1])
