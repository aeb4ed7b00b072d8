// Templates that would never end, or take all memory, or all of the stack, are ended by name.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "common/text/jinja/template.h"

namespace tandem::testing {
namespace {

using Catch::Matchers::Contains;

absl::StatusOr<std::string> RenderWithin(const std::string& source) {
  const auto parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  const auto variables =
      jinja::Value::FromJson(nlohmann::ordered_json::parse(R"({"l": [1, 2, 3]})"));
  return parsed->Render(variables->mapping(), absl::UnixEpoch(), absl::UTCTimeZone());
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

constexpr char kDoubled[] =
    "{% set ns = namespace(x='abcdefgh') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}"
    "{% endfor %}";
constexpr char kNestedPairs[] =
    "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
    "{% set ns.y = [ns.y, ns.y] %}{% endfor %}";

}  // namespace

TEST_CASE("A template that takes too many steps is ended with the reason and a remedy",
          "[text][jinja]") {
  const auto text = RenderWithin(
      "a\n{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}"
      "{% endfor %}{% endfor %}{% endfor %}");
  REQUIRE(text.status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE_THAT(std::string(text.status().message()),
               Contains("line 2: the template ") && Contains("it never ends") &&
                   Contains("use the template of the model's publisher"));
}

TEST_CASE("A template that makes too much is ended, whatever makes it", "[text][jinja]") {
  const std::string doubled = kDoubled, pairs = kNestedPairs;
  const std::string big = "{% set s = 'abcdefgh' * 4000000 %}";
  const std::vector<std::string> sources = {
      doubled,
      pairs + "{{ ns.x }}",
      pairs + "{{ ns.x | tojson }}",
      pairs + "{{ ns.x == ns.y }}",
      pairs + "{{ ns.x < ns.y }}",
      "{% set l = [0] * 50000 %}{{ l * 1000 * 1000 }}",
      big + "{{ ([s] * 100000) | join(s) }}",
      big + "{{ s.join([s] * 100000) }}",
      big + "{{ s | replace('a', s) }}",
      big + "{{ s.replace('', s) }}",
      big + "{{ s | list }}",
      big + "{{ s | indent(s) }}{{ (s | replace('a', '\n')) | indent(s, true, true) }}",
      big + "{% for i in range(99999) %}{{ s }}{% endfor %}",
      big + "{% set t %}{% for i in range(99999) %}{{ s }}{% endfor %}{% endset %}",
      big + "{{ '%s%s%s%s%s' % (s, s, s, s, s) }}",
      "{{ [1] | batch(1000000000, 0) | list }}",
      "{{ [1] | slice(1000000000) | list }}",
      "{% for i in range(99999) %}{{ range(99999) | unique | list | length }}{% endfor %}",
      "{% for i in range(99999) %}{% set x = range(99999) | sort %}{% endfor %}",
      "{% set s = 'ab' * 9000000 %}{{ s.rfind('b' * 9000000) }}",
  };
  for (const std::string& source : sources) {
    CAPTURE(source.substr(0, 200));
    const auto text = RenderWithin(source);
    REQUIRE(text.status().code() == absl::StatusCode::kInvalidArgument);
    REQUIRE_THAT(std::string(text.status().message()), Contains("the template "));
  }
}

TEST_CASE("An empty text repeated without end is an empty text", "[text][jinja]") {
  REQUIRE(RenderWithin("{{ '' * 9223372036854775807 }}").value().empty());
  REQUIRE(RenderWithin("{{ [] * 9223372036854775807 }}").value() == "[]");
}

TEST_CASE("A search takes no longer where the text nearly matches everywhere", "[text][jinja]") {
  REQUIRE(RenderWithin("{{ ('a' * 3000000 ~ 'b') in 'a' * 30000000 }}").value() == "False");
}

TEST_CASE("Values nested without end are refused, and chains of objects come apart",
          "[text][jinja]") {
  const auto nested = RenderWithin(
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}"
      "{% endfor %}");
  REQUIRE_THAT(std::string(nested.status().message()),
               Contains("nests values more than 256 levels deep"));
  REQUIRE(RenderWithin("{% set ns = namespace(x=0) %}{% for i in range(99999) %}"
                       "{% set ns.x = cycler(ns.x) %}{% endfor %}ok")
              .value() == "ok");
  REQUIRE(RenderWithin("{% set ns = namespace(x=0) %}{% for i in range(99999) %}"
                       "{% set ns.x = namespace(x=ns.x) %}{% endfor %}ok")
              .value() == "ok");
}

TEST_CASE("A namespace that holds itself is not an endless text", "[text][jinja]") {
  // The second prints 200 lists for each time that it comes back to itself.
  for (const std::string way :
       {"{% set ns.a = [ns, ns] %}",
        "{% for i in range(200) %}{% set ns.a = [ns.a, ns] %}{% endfor %}"}) {
    CAPTURE(way);
    const auto text = RenderWithin("{% set ns = namespace(a=1) %}" + way + "{{ ns }}");
    REQUIRE(text.status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("Expressions and targets nested without end are refused by the parser", "[text][jinja]") {
  const std::vector<std::string> sources = {
      "{{ 1" + Repeated(" + 1", 100000) + " }}",
      "{{ 1" + Repeated(" ** 1", 100000) + " }}",
      "{{ a" + Repeated(".a", 100000) + " }}",
      "{{ a" + Repeated("[0]", 100000) + " }}",
      "{{ a" + Repeated("()", 100000) + " }}",
      "{{ a" + Repeated("|a", 100000) + " }}",
      "{{ a" + Repeated(" or a", 100000) + " }}",
      "{{ a" + Repeated(" and a", 100000) + " }}",
      "{{ a" + Repeated(" if a", 100000) + " }}",
      "{{ " + Repeated("(", 100000) + "1" + Repeated(")", 100000) + " }}",
      "{{ " + Repeated("-", 100000) + "1 }}",
      "{{ " + Repeated("not ", 100000) + "1 }}",
      "{% set " + Repeated("(", 100000) + "a" + Repeated(")", 100000) + " = 1 %}",
      "{% for " + Repeated("(", 100000) + "a" + Repeated(")", 100000) + " in a %}{% endfor %}",
      Repeated("{% if a %}", 50000),
      "{% filter a" + Repeated("|a", 100000) + " %}{% endfilter %}",
  };
  for (const std::string& source : sources) {
    CAPTURE(source.substr(0, 40));
    const auto text = RenderWithin(source);
    REQUIRE(text.status().code() == absl::StatusCode::kInvalidArgument);
    REQUIRE_THAT(std::string(text.status().message()),
                 Contains("nested too deeply") || Contains("more than 1000 operators"));
  }
}

TEST_CASE("A macro that calls itself from within deep expressions is ended", "[text][jinja]") {
  const std::string deep = Repeated("(1 + ", 90), close = Repeated(")", 90);
  const auto text =
      RenderWithin("{% macro m() %}{{ " + deep + "m()" + close + " }}{% endmacro %}{{ m() }}");
  REQUIRE_FALSE(text.ok());
  REQUIRE_THAT(std::string(text.status().message()), Contains("calls itself"));
}

TEST_CASE("Numbers at the ends of their range are errors or values, never undefined",
          "[text][jinja]") {
  const std::vector<std::pair<const char*, const char*>> values = {
      {"{{ range(9223372036854775806, 9223372036854775807, 2) | list }}", "[9223372036854775806]"},
      {"{{ 'ab' | truncate(5, leeway=9223372036854775807) }}", "ab"},
      {"{{ '7'.zfill(-9223372036854775807) }}", "7"},
      {"{{ 'abc'.find('c', 9223372036854775807) }}", "-1"},
      {"{{ 1.5 | round(-9223372036854775807) }}", "nan"}};
  for (const auto& [source, expected] : values) {
    CAPTURE(source);
    REQUIRE(RenderWithin(source).value() == expected);
  }
  for (const char* source :
       {"{{ '%c' % 1114112 }}", "{{ '%c' % 55296 }}", "{{ '%c' % -1 }}", "{{ '%d' % 1e300 }}",
        "{{ '%*d' % (9223372036854775807, 1) }}", "{{ '%.*f' % (-9223372036854775807, 1.0) }}"}) {
    CAPTURE(source);
    REQUIRE(RenderWithin(source).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("A template that is not text, or far too long, is refused", "[text][jinja]") {
  REQUIRE_THAT(std::string(RenderWithin("a\xFF{{ l }}").status().message()), Contains("not UTF-8"));
  REQUIRE_THAT(std::string(RenderWithin(std::string((1 << 20) + 1, 'a')).status().message()),
               Contains("too many for a template"));
}

}  // namespace tandem::testing
