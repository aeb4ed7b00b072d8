#include "common/types/topology.h"

#include <string_view>

#include <fmt/format.h>

namespace tandem {
namespace {

std::string Counted(int number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

}  // namespace

std::string Topology::Text() const {
  const bool one = trainers + rollouts == 2;
  const std::string workers =
      fmt::format("{} and {}", Counted(trainers, "trainer"), Counted(rollouts, "rollout"));
  if (apart) return fmt::format("{} on {}", workers, Counted(devices(), "device"));
  return fmt::format("{} that {} {}", workers, one ? "share" : "share in pairs",
                     Counted(devices(), "device"));
}

}  // namespace tandem
