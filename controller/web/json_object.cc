#include "controller/web/json_object.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace tandem {

std::string JsonText(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string JsonNumber(double number) {
  return std::isfinite(number) ? fmt::format("{:.5g}", number) : "null";
}

std::string JsonList(const std::vector<std::string>& parts) {
  return fmt::format("[{}]", fmt::join(parts, ","));
}

JsonObject& JsonObject::Add(std::string_view name, std::string_view value) {
  if (text_.size() > 1) text_ += ',';
  text_ += JsonText(name);
  text_ += ':';
  text_ += value;
  return *this;
}

}  // namespace tandem
