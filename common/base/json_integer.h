// Reads whole numbers from JSON that comes from outside.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// `json` (an nlohmann::basic_json) as a T. Json::type_error: it is no whole number that fits T.
// json.get<T>() takes every number: one with a fraction or an exponent that does not fit T has
// undefined behaviour there, and a large whole one becomes another number.
template <typename T, typename Json>
T IntegerOf(const Json& json) {
  if (json.is_number_unsigned()) {
    const auto value = json.template get<uint64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  } else if (json.is_number_integer()) {
    const auto value = json.template get<int64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  }
  throw Json::type_error::create(302,
                                 "must be a whole number from " +
                                     std::to_string(std::numeric_limits<T>::min()) + " to " +
                                     std::to_string(std::numeric_limits<T>::max()) + ", but is " +
                                     (json.is_number() ? json.dump() : json.type_name()),
                                 &json);
}

// A list of such numbers.
template <typename T, typename Json>
std::vector<T> IntegersOf(const Json& json) {
  if (!json.is_array()) throw Json::type_error::create(302, "must be a list of numbers", &json);
  std::vector<T> values;
  values.reserve(json.size());
  for (const Json& item : json) values.push_back(IntegerOf<T>(item));
  return values;
}

}  // namespace tandem
