// Reads whole numbers from JSON that comes from outside.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// Converts `json` (an nlohmann::basic_json) to T. Throws Json::type_error unless it is an integer
// in the range of T. json.get<T>() does not check: a float out of range is undefined behaviour, and
// a large integer wraps.
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
