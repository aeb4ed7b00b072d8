#include "common/config/verl/known_keys.h"

#include <algorithm>

namespace tandem {
namespace {

#define TANDEM_VERL_VERSIONS(versions)
#define TANDEM_VERL_KEY(key, default_value) {key, default_value},
constexpr VerlKey kKnownKeys[] = {
#include "common/config/verl/known_keys.inc"
};
#undef TANDEM_VERL_VERSIONS
#undef TANDEM_VERL_KEY

#define TANDEM_VERL_VERSIONS(versions) versions
#define TANDEM_VERL_KEY(key, default_value)
constexpr std::string_view kKnownVersions =
#include "common/config/verl/known_keys.inc"
    ;
#undef TANDEM_VERL_VERSIONS
#undef TANDEM_VERL_KEY

}  // namespace

std::span<const VerlKey> KnownVerlKeys() { return kKnownKeys; }

std::string_view KnownVerlVersions() { return kKnownVersions; }

const VerlKey* FindVerlKey(std::string_view key) {
  const auto* found = std::lower_bound(
      std::begin(kKnownKeys), std::end(kKnownKeys), key,
      [](const VerlKey& known, std::string_view wanted) { return known.key < wanted; });
  return found != std::end(kKnownKeys) && found->key == key ? found : nullptr;
}

}  // namespace tandem
