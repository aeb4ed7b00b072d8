"""Chromium without a window, driven for a test: what it shows, says on its console and asks for."""
import json
import pathlib
import shutil
import urllib.parse

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

WAIT_SECONDS = 60  # for what takes well below a second where the machine has nothing else to do
THEMES = ("light", "dark")
WIDTHS = (380, 720, 1440)  # 720: a screen of 1440 at 200 %


def missing():
    """What of the browser is not installed, as a sentence; "" if it is."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return ""


class Browser:
    def __init__(self):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--disable-background-networking", "--disable-component-update", "--no-first-run"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        # Before any script of a page: violations of its policy are kept, as are errors that nobody catches.
        self._command("Page.addScriptToEvaluateOnNewDocument", source="""
            window.refused = [];
            addEventListener('securitypolicyviolation', (event) => refused.push(
                `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
            addEventListener('unhandledrejection', (event) => refused.push(`unhandled: ${event.reason}`));
        """)
        self.errors = []
        self.requests = []  # addresses, in order

    def close(self):
        self.driver.quit()

    def _command(self, name, **parameters):
        return self.driver.execute_cdp_cmd(name, parameters)

    def look(self, width, theme):
        self._command("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": theme}])
        self._command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
                      mobile=False)

    def run(self, script, *values):
        return self.driver.execute_script(script, *values)

    def wait(self, condition, *values, what=None):
        """Until the JavaScript expression is true; its value."""
        found = WebDriverWait(self.driver, WAIT_SECONDS, poll_frequency=0.05).until(
            lambda _: self.run(f"return {condition}", *values), what or f"it never came to: {condition} {values}")
        return found

    def open(self, address):
        """Another document."""
        self.driver.get("about:blank")
        self.driver.get(address)

    def go(self, fragment):
        """Another page of the same document."""
        self.run("document.getElementById('main').dataset.shown = '';"
                 "if (location.hash === arguments[0]) dispatchEvent(new HashChangeEvent('hashchange'));"
                 "else location.hash = arguments[0]", fragment)
        self.shown(fragment)

    def shown(self, fragment):
        self.wait("document.getElementById('main')?.dataset.shown === arguments[0] &&"
                  "!document.getElementById('main').hasAttribute('aria-busy')", fragment)

    def shown_like(self, pattern):
        return self.wait("new RegExp(arguments[0]).test(document.getElementById('main').dataset.shown) &&"
                         "!document.getElementById('main').hasAttribute('aria-busy') && location.hash", pattern)

    def press(self, *keys):
        chain = ActionChains(self.driver)
        for key in keys:
            chain = chain.send_keys(getattr(Keys, key, key))
        chain.perform()

    def drag(self, selector, first, last):
        """Over an element, from one share of its width to another."""
        element = self.driver.find_element("css selector", selector)
        width = element.size["width"]
        ActionChains(self.driver).move_to_element_with_offset(element, (first - 0.5) * width, 0).click_and_hold() \
            .move_by_offset((last - first) * width, 0).release().perform()

    def text(self, selector="#main"):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def collect(self):
        """Takes what the browser has noted since the last call."""
        for entry in self.driver.get_log("browser"):
            if entry["level"] in ("SEVERE", "WARNING"):
                self.errors.append(entry["message"])
        self.errors += self.run("return window.refused?.splice(0) ?? []")
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])

    def strangers(self, origin):
        """Requests to others than the server."""
        return [url for url in self.requests
                if not url.startswith((f"{origin}/", "data:", "blob:", "about:", "chrome:", "chrome-extension:"))]

    def static_requests(self):
        paths = [urllib.parse.urlparse(url).path for url in self.requests]
        return [path for path in paths if path == "/" or path.startswith("/static/")]

    def picture(self, folder, name):
        height = min(4000, self.run("return document.documentElement.scrollHeight"))
        size = self.run("return innerWidth")
        self._command("Emulation.setDeviceMetricsOverride", width=size, height=height, deviceScaleFactor=1,
                      mobile=False)
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(pathlib.Path(folder) / f"{name}.png"))
