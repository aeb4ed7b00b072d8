#include "controller/plan/memory_amount.h"

#include <cctype>
#include <cmath>

#include <absl/strings/numbers.h>

#include "common/base/status.h"

namespace tandem {
namespace {

constexpr double kLeastBytes = 1 << 20;

// The number of bytes of a unit; 0: unknown unit.
double UnitBytes(const std::string& unit) {
  if (unit.empty() || unit == "B" || unit == "bytes") return 1;
  static const std::string prefixes = "KMGT";
  const size_t power = prefixes.find(static_cast<char>(std::toupper(unit[0])));
  if (power == std::string::npos) return 0;
  const std::string rest = unit.substr(1);
  if (rest == "iB") return std::pow(1024.0, static_cast<double>(power + 1));
  if (rest == "B") return std::pow(1000.0, static_cast<double>(power + 1));
  return 0;
}

}  // namespace

absl::StatusOr<int64_t> ParseBytes(const std::string& text) {
  size_t digits = text.find_first_not_of("0123456789.");
  if (digits == std::string::npos) digits = text.size();
  size_t unit = text.find_first_not_of(' ', digits);
  if (unit == std::string::npos) unit = text.size();
  double number = 0;
  const double factor = UnitBytes(text.substr(unit));
  const bool parsed = absl::SimpleAtod(text.substr(0, digits), &number);
  if (!parsed || factor == 0) {
    return InvalidArgument(
        "\"{}\" is not an amount of memory; write 80GiB, 512MiB (powers of 1024), 80GB, 512MB "
        "(powers "
        "of 1000) or a number of bytes",
        text);
  }
  const double bytes = number * factor;
  if (bytes < kLeastBytes) {
    return InvalidArgument(
        "\"{}\" is {:g} bytes, less than any device has; write the unit, such as 80GiB or 512MiB",
        text, bytes);
  }
  if (bytes > 1e18) return InvalidArgument("\"{}\" is more memory than a device has", text);
  return static_cast<int64_t>(bytes);
}

}  // namespace tandem
