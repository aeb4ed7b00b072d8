// Arguments put into the parameters of a built-in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/text/jinja/value/value.h"

namespace tandem::jinja {

// Parameters in order; absent ones are null.
class Bound {
 public:
  explicit Bound(std::vector<std::optional<Value>> values) : values_(std::move(values)) {}

  const Value* operator[](size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  Value Or(size_t i, Value fallback) const { return values_[i].value_or(std::move(fallback)); }
  bool Flag(size_t i, bool fallback) const;
  // InvalidArgument if given and not an integer.
  absl::StatusOr<int64_t> Int(size_t i, int64_t fallback) const;
  // InvalidArgument if given and not a string.
  absl::StatusOr<std::string> Text(size_t i, const std::string& fallback) const;

 private:
  std::vector<std::optional<Value>> values_;
};

// InvalidArgument: too many, unknown, doubled, or fewer than `required`. `function` is for
// messages.
absl::StatusOr<Bound> Bind(const std::string& function,
                           const Args& args,
                           const std::vector<std::string>& names,
                           size_t required = 0);

}  // namespace tandem::jinja
