#!/usr/bin/python3
"""The dashboard's pages in Chromium, over a recorded run.
  pages_test.py --tandemctl build/bin/tandemctl --run-dir RUN_DIR [--screenshots DIR] [unittest's arguments]
Exits with 77 where there is no Chromium."""
import argparse
import importlib.util
import pathlib
import sys
import tempfile
import unittest
import urllib.request

import dashboard

MOST_BYTES = 90 * 1024      # of all static files, compressed
MOST_REQUESTS = 6           # for files, until the list of runs is there
given = argparse.Namespace()


def compressed_size(origin, path):
    request = urllib.request.Request(origin + path, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request) as answer:
        body = answer.read()
        if answer.headers.get("Content-Encoding") != "gzip":
            raise AssertionError(f"{path} is not sent compressed")
        return len(body)


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tandem-browser-")
        root = pathlib.Path(cls.folder.name)
        cls.addClassCleanup(cls.folder.cleanup)
        dashboard.copy_run(given.run_dir, root / "good")
        cls.step, cls.sample = dashboard.spoil(dashboard.copy_run(given.run_dir, root / "evil"))
        cls.served = dashboard.Dashboard(given.tandemctl, root)
        cls.addClassCleanup(cls.served.close)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)
        cls.browser.look(1440, "light")
        cls.browser.open(cls.served.address)
        cls.browser.shown("#/")

    def setUp(self):
        self.browser.look(1440, "light")
        self.browser.collect()
        self.browser.errors.clear()
        self.browser.requests.clear()

    def tearDown(self):
        self.browser.collect()
        self.assertEqual(self.browser.errors, [])
        self.assertEqual(self.browser.strangers(self.served.origin), [])
        self.assertIsNone(self.browser.run("return window.pwned ?? null"))

    def addresses(self, run):
        """Name to address of each page."""
        top = f"#/runs/{run}"
        return {"runs": "#/", "overview": top, "metrics": f"{top}/metrics", "metrics-found": f"{top}/metrics?q=reward",
                "step": f"{top}/step/{self.step}", "step-newest": f"{top}/step", "samples": f"{top}/samples",
                "sample": f"{top}/samples/{self.step}/{self.sample}", "events": f"{top}/events", "config": f"{top}/config"}

    def drawn(self, name):
        if name in ("overview", "metrics", "metrics-found"):
            self.browser.wait("document.querySelector('.plot canvas') !== null")

    def test_the_token_leaves_the_address(self):
        self.assertNotIn("t=", self.browser.run("return location.href"))
        self.assertEqual(self.browser.run("return document.cookie"), "")

    def test_each_page_shows_in_both_themes_and_widths_without_sideways_scrolling(self):
        for width in browser.WIDTHS:
            for theme in browser.THEMES:
                for name, address in self.addresses("evil").items():
                    with self.subTest(page=name, width=width, theme=theme):
                        self.browser.look(width, theme)
                        self.browser.go(address)
                        self.drawn(name)
                        wide = self.browser.run("return document.documentElement.scrollWidth")
                        self.assertLessEqual(wide, width)
                        self.assertGreater(len(self.browser.text()), 40)
                        self.assertTrue(self.browser.run("return document.querySelector('h1') !== null"))
                        if given.screenshots:
                            self.browser.picture(given.screenshots, f"{name}-{width}-{theme}")

    def test_the_overview_has_eight_charts_with_words_and_tables(self):
        self.browser.go("#/runs/good")
        self.drawn("overview")
        labels = self.browser.run("return [...document.querySelectorAll('.chart .plot')].map((e) => e.ariaLabel)")
        self.assertEqual(len(labels), 8)
        told = [label for label in labels if "last" in label and "minimum" in label and "maximum" in label]
        self.assertGreaterEqual(len(told), 7)  # older builds counted no groups
        rows = self.browser.wait("(() => { const d = document.querySelector('.chart details'); d.open = true;"
                                 "return d.querySelectorAll('tbody tr').length; })()")
        self.assertGreater(rows, 0)

    def test_what_is_no_number_is_a_gap_and_not_0(self):
        see = self.browser
        see.go("#/runs/evil")
        self.drawn("overview")
        cells = see.wait("(() => { const c = [...document.querySelectorAll('figure.chart')].find((e) => "
                         "e.querySelector('.chart-title').textContent.startsWith('Entropy')); const d = c.querySelector('details');"
                         "d.open = true; const r = d.querySelector('tbody tr'); return r && [...r.cells].map((e) => e.textContent); })()")
        self.assertEqual(cells[1], "NaN", cells)

    def test_the_cursor_is_shared_and_a_zoom_too(self):
        self.browser.go("#/runs/good")
        self.drawn("overview")
        self.browser.run("document.querySelectorAll('.plot')[0].focus()")
        self.browser.press("ARROW_RIGHT", "ARROW_RIGHT")
        self.browser.wait("[...document.querySelectorAll('.chart:has(canvas) .at')].every((e) => e.textContent === "
                          "document.querySelector('.at').textContent && e.textContent !== '')")
        steps = "[...document.querySelectorAll('.chart:has(canvas) .plot')].map((e) => e.ariaLabel.split('Steps ')[1])"
        whole = self.browser.run(f"return {steps}")
        self.browser.drag(".plot", 0.4, 0.7)
        self.browser.wait("document.querySelector('.range button') !== null")
        if self.step > 10:  # else the steps around the part may be all
            self.browser.wait(f"{steps}.every((text, i) => text !== arguments[0][i])", whole)
        self.browser.run("document.querySelector('.range button').click()")
        self.browser.wait(f"{steps}.every((text, i) => text === arguments[0][i])", whole)

    def test_hostile_texts_are_shown_as_escapes(self):
        for name in ("sample", "samples", "events", "overview", "step", "metrics-found"):
            with self.subTest(page=name):
                self.browser.go(self.addresses("evil")[name])
                self.drawn(name)
                self.assertEqual(self.browser.run("return document.querySelectorAll('#main img, #main script').length"), 0)
        self.browser.go(self.addresses("evil")["sample"])
        said = self.browser.text()
        for escape in dashboard.ESCAPES:
            self.assertIn(escape, said)
        self.assertIn("<script>", said)
        for raw in "\u202e\u2066\x1b\x00\u200f":
            self.assertNotIn(raw, self.browser.run("return document.body.textContent + document.title"))
        self.browser.go(self.addresses("evil")["metrics-found"])
        self.assertIn("⟨U+202E⟩", self.browser.text())

    def test_the_keyboard_leads_from_the_runs_to_a_sample(self):
        see = self.browser
        see.open(self.served.origin + "/#/")
        see.shown("#/")
        see.press("/")
        see.wait("document.activeElement.matches('[data-filter]')")
        see.press(*"good")
        see.wait("document.querySelectorAll('#main tbody tr').length === 1")
        see.press("ESCAPE")
        see.press("j")
        see.wait("document.activeElement.matches('tr[data-row]')")
        see.press("ENTER")
        see.shown("#/runs/good")
        see.press("g", "s")
        see.shown("#/runs/good/samples")
        see.press("j")
        see.press("j")
        see.wait("document.activeElement === document.querySelectorAll('#main tr[data-row]')[1]")
        see.press("k")
        see.wait("document.activeElement === document.querySelectorAll('#main tr[data-row]')[0]")
        outline = see.run("return getComputedStyle(document.activeElement).outlineStyle")
        self.assertNotEqual(outline, "none")
        see.press("ENTER")
        first = see.shown_like(r"/samples/\d+/\d+$")
        if see.run("return document.querySelector('[data-next]') !== null"):  # else it is alone in its group
            see.press("]")
            see.wait("location.hash !== arguments[0] && document.getElementById('main').dataset.shown === location.hash", first)
        see.press("g", "t")
        see.shown("#/runs/good/step")
        see.press("[")
        see.shown_like(r"/step/\d+$")
        see.press("?")
        see.wait("document.querySelector('dialog[open]') !== null")
        see.press("ESCAPE")
        see.wait("document.querySelector('dialog') === null")
        for key, page in (("e", "events"), ("c", "config"), ("m", "metrics")):
            see.press("g", key)
            see.shown(f"#/runs/good/{page}")
        see.press("g", "r")
        see.shown("#/")

    def test_samples_are_filtered_sorted_and_searched(self):
        see = self.browser
        see.go("#/runs/good/samples")
        see.run("document.querySelector('[data-preset=\"Longest\"]').click()")
        see.wait("new URLSearchParams(location.hash.split('?')[1]).get('sort') === '-length'")
        see.wait("(() => { const n = [...document.querySelectorAll('#main tbody tr')].map((r) => Number(r.cells[3].textContent));"
                 "return n.length > 0 && n.every((v, i) => i === 0 || n[i - 1] >= v); })()")
        see.run("const e = document.querySelector('[data-filter]'); e.value = 'nothing has this text';"
                "e.dispatchEvent(new Event('input'))")
        see.wait("document.querySelector('#main .table .note').checkVisibility()")

    def test_metrics_are_filtered_smoothed_and_saved(self):
        see = self.browser
        see.go("#/runs/good/metrics")
        see.run("const e = document.querySelector('[data-filter]'); e.value = 'actor/entropy';"
                "e.dispatchEvent(new Event('input'))")
        see.wait("document.querySelectorAll('#main figure.chart').length === 1 && document.querySelector('.plot canvas') !== null")
        label = see.run("return document.querySelector('.plot').ariaLabel")
        see.run("const e = document.querySelector('input[type=range]'); e.value = 0.9; e.dispatchEvent(new Event('input'))")
        see.wait("document.querySelector('.plot').ariaLabel !== arguments[0]", label)
        see.wait("location.hash.includes('ema=0.9')")
        see.run("const make = URL.createObjectURL; URL.createObjectURL = (blob) => {"
                "blob.text().then((text) => { window.saved = text; }); return make.call(URL, blob); };"
                "[...document.querySelectorAll('button')].find((e) => e.textContent === 'Save as CSV').click()")
        lines = see.wait("window.saved?.trimEnd().split('\\n')")
        self.assertEqual(lines[0], "step,actor/entropy")
        self.assertEqual(len(lines) - 1, self.step)
        self.assertTrue(all(float(line.split(",")[1]) >= 0 for line in lines[1:]))

    def test_a_wrong_condition_is_explained(self):
        see = self.browser
        see.go("#/runs/good/samples?where=bogus%3E1")
        see.wait("document.querySelector('.alert.warn').textContent.includes('bogus')")
        see.collect()
        # The browser notes that the server refused it.
        see.errors = [error for error in see.errors if "status of 400" not in error]

    def test_no_run_of_this_name(self):
        see = self.browser
        see.go("#/runs/none")
        self.assertIn("There is no such thing", see.text())
        see.collect()
        see.errors = [error for error in see.errors if "status of 404" not in error]

    def test_bytes_and_requests(self):
        see = self.browser
        see.driver.execute_cdp_cmd("Network.clearBrowserCache", {})
        see.open(self.served.origin + "/#/")
        see.shown("#/")
        see.wait("document.querySelector('#main tbody tr') !== null")
        see.collect()
        first = see.static_requests()
        self.assertLessEqual(len(first), MOST_REQUESTS, first)
        for name, address in self.addresses("good").items():
            see.go(address)
            self.drawn(name)
        see.press("?")
        see.wait("document.querySelector('dialog[open]') !== null")
        see.press("ESCAPE")
        see.collect()
        files = sorted(set(see.static_requests()))
        sizes = {path: compressed_size(self.served.origin, path) for path in files}
        print(f"{len(first)} requests to the list of runs; {len(files)} files of {sum(sizes.values())} bytes in all", file=sys.stderr)
        self.assertLessEqual(sum(sizes.values()), MOST_BYTES, sizes)

    def test_without_a_session_it_says_how_to_open_it(self):
        see = self.browser
        see.driver.delete_all_cookies()
        see.open(self.served.origin + "/#/")
        see.wait("document.body.innerText.includes('needs its token')")
        see.collect()
        see.errors = [error for error in see.errors if "status of 401" not in error]
        see.open(self.served.address)
        see.shown("#/")
        self.assertIn("good", see.text())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tandemctl", required=True)
    parser.add_argument("--run-dir", required=True, help="a run directory; it is read only")
    parser.add_argument("--screenshots", help="folder for a picture of each page")
    given, rest = parser.parse_known_args()
    absent = "python3-selenium is not installed" if importlib.util.find_spec("selenium") is None else ""
    if not absent:
        import browser
        absent = browser.missing()
    if absent:
        print(f"skipped: {absent}")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
