// Puts the text of a JSON object together from parts, some of which are JSON already.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

// Text that is no UTF-8 gets U+FFFD in its place.
std::string JsonText(std::string_view text);
// With five significant digits, which is finer than a curve can be seen; "null": not finite.
std::string JsonNumber(double number);
// "[a,b]", of parts that are JSON.
std::string JsonList(const std::vector<std::string>& parts);

class JsonObject {
 public:
  // `value` is JSON.
  JsonObject& Add(std::string_view name, std::string_view value);
  JsonObject& AddText(std::string_view name, std::string_view text) {
    return Add(name, JsonText(text));
  }
  // Ends the object; the last call.
  std::string Finish() { return std::move(text_) + "}"; }

 private:
  std::string text_ = "{";
};

}  // namespace tandem
