#include "common/formats/free_space.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

namespace tandem {

std::optional<int64_t> FreeBytesIn(const std::string& folder) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) return std::nullopt;
  constexpr auto kMost = static_cast<std::uintmax_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(space.available, kMost));
}

}  // namespace tandem
