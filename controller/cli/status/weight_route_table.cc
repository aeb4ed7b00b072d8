#include "controller/cli/status/weight_route_table.h"

#include <vector>

#include <fmt/format.h>

#include "controller/report/format.h"

namespace tandem {

std::string WeightRouteTable(const v1::GetStatusResponse& status) {
  std::vector<std::vector<std::string>> rows = {
      {"weights", "over", "bytes", "at least", "last sync", "version", "seconds", "at"}};
  for (const v1::WeightRoute& route : status.routes()) {
    const double expected = route.expected_seconds();
    rows.push_back({fmt::format("trainer {} to rollout {}", route.trainer(), route.rollout()),
                    route.over().empty() ? "-" : route.over(), FormatBytes(route.bytes()),
                    expected > 0 ? FormatSeconds(expected) : "-"});
    const v1::WeightSyncRecord& last = route.last();
    const std::vector<std::string> cells =
        route.has_last()
            ? std::vector<std::string>{FormatBytes(last.bytes()), std::to_string(last.version()),
                                       fmt::format("{:.3g}", last.seconds()), last.time()}
            : std::vector<std::string>{"-", "-", "-", "-"};
    rows.back().insert(rows.back().end(), cells.begin(), cells.end());
  }
  return rows.size() == 1 ? "" : FormatTable(rows);
}

}  // namespace tandem
