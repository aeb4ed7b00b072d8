#include "common/types/host_id.h"

#include <algorithm>
#include <cctype>

namespace tandem {

std::string HostId::Text() const {
  constexpr size_t kShownDigits = 8;
  const std::string boot = "boot " + boot_id.substr(0, kShownDigits);
  return node.empty() ? boot : node + " (" + boot + ")";
}

bool IsNodeName(const std::string& name) {
  constexpr size_t kLongestName = 253;  // of DNS
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
         });
}

}  // namespace tandem
