#include "common/text/jinja/value/arguments.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/text/jinja/value/compare.h"

namespace tandem::jinja {

bool Bound::Flag(size_t i, bool fallback) const {
  return values_[i] ? Truthy(*values_[i]) : fallback;
}

absl::StatusOr<int64_t> Bound::Int(size_t i, int64_t fallback) const {
  if (!values_[i]) return fallback;
  const Value& value = *values_[i];
  if (value.is_int()) return value.integer();
  if (value.is(Kind::kBool)) return value.boolean();
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  return InvalidArgument("'{}' object cannot be interpreted as an integer", TypeName(value));
}

absl::StatusOr<std::string> Bound::Text(size_t i, const std::string& fallback) const {
  if (!values_[i]) return fallback;
  const Value& value = *values_[i];
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return InvalidArgument("{}", value.undefined_message());
  return InvalidArgument("argument must be str, not {}", TypeName(value));
}

absl::StatusOr<Bound> Bind(const std::string& function,
                           const Args& args,
                           const std::vector<std::string>& names,
                           size_t required) {
  if (args.positional.size() > names.size()) {
    return InvalidArgument("{}() takes at most {} arguments ({} given)", function, names.size(),
                           args.positional.size());
  }
  std::vector<std::optional<Value>> values(names.size());
  std::copy(args.positional.begin(), args.positional.end(), values.begin());
  for (const auto& [name, value] : args.named) {
    const size_t index =
        static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (index == names.size()) {
      return InvalidArgument("{}() got an unexpected keyword argument '{}'", function, name);
    }
    if (values[index]) {
      return InvalidArgument("{}() got multiple values for argument '{}'", function, name);
    }
    values[index] = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values[i]) return InvalidArgument("{}() is missing the argument '{}'", function, names[i]);
  }
  return Bound(std::move(values));
}

}  // namespace tandem::jinja
