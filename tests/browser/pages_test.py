#!/usr/bin/python3
"""The dashboard's pages in Chromium, over a recorded run.
  pages_test.py --tandemctl build/bin/tandemctl --run-dir RUN_DIR [--screenshots DIR] [unittest's arguments]
Exits with 77 where there is no Chromium."""
import argparse
import importlib.util
import pathlib
import re
import sys
import tempfile
import unittest
import urllib.request

import dashboard

MOST_BYTES = 90 * 1024      # of all static files, compressed
MOST_REQUESTS = 6           # for files, until the list of runs is there
# In place of a sample's tokens 1,100 others: a third of them hostile, a quarter with no text, with all values.
MANY_TOKENS = """
const evil = arguments[0];
window.fetched = window.fetch;
window.fetch = async (...request) => {
  if (!String(request[0]).includes('/tokens')) return fetched(...request);
  const from = Number(/from=(\\d+)/.exec(request[0])[1]);
  const places = [...Array(Math.min(512, 1100 - from)).keys()].map((i) => i + from);
  const value = (of) => places.map((i) => (i < 20 ? null : of(i)));
  return new Response(JSON.stringify({prompt_tokens: 20, tokens: 1100, from, ids: places, note: '',
    texts: places.map((i) => (i % 4 === 0 ? '' : i % 3 === 0 ? evil : ' a\\n')),
    values: {log_probs: value((i) => -(i % 7)), old_log_probs: value((i) => -(i % 7) + (i % 50 === 0 ? 1 : 0.01 * (i % 5))),
      mask: value((i) => Number(i % 9 > 0)), versions: value((i) => Math.floor(i / 300))}}));
};"""
given = argparse.Namespace()


def without_special(text):
    """A response's text has no special tokens; bytes around one may be no character, and are one without it."""
    return re.sub(r"<\|\w+\|>|\ufffd", "", text)


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
        dashboard.forget_tokens(dashboard.copy_run(given.run_dir, root / "old"))
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

    def colour_by(self, name):
        self.browser.run("const e = document.querySelector('[data-colour]'); e.value = arguments[0];"
                         "e.dispatchEvent(new Event('change'))", name)
        self.browser.wait("new URLSearchParams(location.hash.split('?')[1]).get('colour') === arguments[0]", name)
        return self.browser.text(".token-legend")

    def test_the_tokens_make_the_response(self):
        see = self.browser
        see.go(self.addresses("good")["sample"])
        self.assertGreater(see.run("return document.querySelectorAll('.token.of-prompt').length"), 0)
        texts = see.run("return [...document.querySelectorAll('.token:not(.of-prompt)')].map((e) => e.textContent)")
        response = see.run("return document.querySelector('pre[aria-label=Response]')?.textContent ?? ''")
        self.assertEqual(without_special("".join(texts)), without_special(response))
        self.assertRegex(see.text(), r"tokens 1 to \d+ of \d+")
        self.assertIn("actor.old_log_prob is not recompute", see.text())

    def test_tokens_are_coloured_by_what_the_address_says(self):
        see = self.browser
        see.go(self.addresses("good")["sample"])
        choices = see.run("return [...document.querySelector('[data-colour]').options].map((e) => e.value)")
        self.assertEqual(choices[0], "log-prob")
        self.assertIn("version", choices)
        legends = {see.text(".token-legend")} | {self.colour_by(name) for name in choices[1:]}
        self.assertEqual(len(legends), len(choices), legends)
        see.go(f"{self.addresses('good')['sample']}?colour=version")
        self.assertEqual(see.run("return document.querySelector('[data-colour]').value"), "version")
        self.assertIn("version", see.text(".token-legend .legend"))

    def test_keys_move_between_tokens_and_the_panel_follows(self):
        see = self.browser
        see.go(self.addresses("good")["sample"])
        at = "Number(document.activeElement.dataset.at)"
        see.run("document.querySelector('.token[tabindex=\"0\"]').focus()")
        first = see.run(f"return {at}")
        count = see.run("return document.querySelectorAll('.token').length")
        height = see.run("return document.documentElement.scrollHeight")
        last = count - 1
        for key, place in (("HOME", 0), ("ARROW_RIGHT", 1), ("ARROW_LEFT", 0), ("ARROW_LEFT", 0), ("END", last),
                           ("ARROW_RIGHT", last)):
            see.press(key)
            see.wait(f"{at} === arguments[0]", place)
            self.assertTrue(see.text(".token-panel dd").startswith(f"{place + 1} · "), see.text(".token-panel"))
            self.assertEqual(see.run("return document.querySelectorAll('.token[tabindex=\"0\"]').length"), 1)
        see.press("HOME", "ARROW_DOWN")
        see.wait(f"{at} > 0")
        see.press("ARROW_UP")
        see.wait(f"{at} === 0")
        self.assertGreater(first, 0)  # it begins at the response
        self.assertEqual(see.run("return document.documentElement.scrollHeight"), height)

    def test_hostile_tokens_and_many_of_them(self):
        see = self.browser
        see.run(MANY_TOKENS, dashboard.EVIL)
        try:
            see.go(self.addresses("good")["sample"])
            self.assertIn("tokens 1 to 512 of 1\u202f100", see.text())
            for escape in dashboard.ESCAPES:
                self.assertIn(escape, see.text(".tokens"))
            self.assertEqual(see.run("return document.querySelectorAll('.tokens img, .tokens script').length"), 0)
            self.assertEqual(see.run("return document.querySelectorAll('.token:empty').length"), 128)
            self.assertRegex(self.colour_by("ratio"), r"0\.\d+\s+1\s+1\.\d+")
            self.assertGreater(see.run("return document.querySelectorAll('.token.beyond.more').length"), 0)
            self.assertIn("struck through", self.colour_by("mask"))
            self.assertGreater(see.run("return document.querySelectorAll('.token.masked').length"), 0)
            see.run("document.querySelector('[data-window=later]').click()")
            see.wait("document.querySelector('#main').innerText.includes('tokens 513 to 1\u202f024')")
            self.assertIn("from=512", see.run("return location.hash"))
            see.look(380, "dark")
            self.assertLessEqual(see.run("return document.documentElement.scrollWidth"), 380)
        finally:
            see.run("window.fetch = window.fetched")

    def test_tokens_that_are_not_kept_are_explained(self):
        see = self.browser
        see.go(self.addresses("old")["sample"])
        self.assertRegex(see.text(), r"The tokens of step \d+ are not kept.*\.")
        self.assertEqual(see.run("return document.querySelectorAll('.token').length"), 0)
        see.collect()
        see.errors = [error for error in see.errors if "status of 404" not in error]

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
