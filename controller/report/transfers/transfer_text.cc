#include "controller/report/transfers/transfer_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/report/format.h"

namespace tandem {
namespace {

constexpr size_t kListedRoutes = 16;

std::string TimeText(double seconds) { return seconds > 0 ? FormatSeconds(seconds) : "-"; }

bool CrossesNetwork(const TransferPlan& plan) {
  return plan.trainers.sync_gather_bytes > 0 ||
         std::any_of(plan.routes.begin(), plan.routes.end(),
                     [](const PlannedRoute& route) { return route.between_hosts; });
}

bool HasShared(const TransferPlan& plan) {
  return std::any_of(plan.routes.begin(), plan.routes.end(), [](const PlannedRoute& route) {
    return route.over == Carrier::kSharedMemory;
  });
}

// A row for each route or, of many, for those that are alike.
std::string RouteTable(const TransferPlan& plan) {
  std::vector<std::vector<std::string>> rows = {{"weights", "over", "bytes", "at least"}};
  const auto add = [&](std::string name, const PlannedRoute& route) {
    rows.push_back({std::move(name), CarrierName(route.over), FormatBytes(route.bytes),
                    TimeText(route.seconds)});
  };
  if (plan.routes.size() <= kListedRoutes) {
    for (const PlannedRoute& route : plan.routes) {
      add(fmt::format("trainer {} to rollout {}", route.trainer, route.rollout), route);
    }
    return FormatTable(rows);
  }
  std::map<std::pair<Carrier, double>, std::pair<size_t, const PlannedRoute*>> alike;
  for (const PlannedRoute& route : plan.routes) {
    auto& [count, one] = alike[{route.over, route.seconds}];
    ++count;
    one = &route;
  }
  for (const auto& [key, routes] : alike) {
    add(fmt::format("{} routes, each", routes.first), *routes.second);
  }
  return FormatTable(rows);
}

std::string TrainerTable(const TransferPlan& plan) {
  const TrainerTraffic& trainers = plan.trainers;
  if (trainers.sync_gather_bytes == 0) return "";
  std::vector<std::vector<std::string>> rows = {
      {"in and out of a host of trainers, at most", "bytes", "at least"}};
  const auto add = [&](std::string name, int64_t bytes) {
    rows.push_back({std::move(name), FormatBytes(bytes), TimeText(plan.NetworkSeconds(bytes))});
  };
  add("weights gathered in each round of a sync", trainers.sync_gather_bytes);
  const std::string step =
      fmt::format("an optimizer step of {} micro-batches", trainers.micro_batches);
  add("gradients of " + step, trainers.gradient_bytes);
  add("weights gathered for " + step, trainers.gather_bytes);
  return FormatTable(rows);
}

// What the times rest on.
std::string Basis(const TransferPlan& plan) {
  std::vector<std::string> parts;
  if (HasShared(plan) && plan.copied_bytes_per_second > 0) {
    parts.push_back(
        fmt::format("shm by one copy of the bytes, at {:.1f} GB/s, which one thread was just "
                    "measured to copy here "
                    "(a sync also arranges and digests them: 1.3 to 3 times as long, "
                    "docs/reference/benchmarks.md)",
                    plan.copied_bytes_per_second / 1e9));
  }
  const bool network = CrossesNetwork(plan);
  if (network && plan.network_gbit_per_second > 0) {
    parts.push_back(
        fmt::format("between hosts by cluster.network_gbit_per_second={:g} alone, without "
                    "encryption and copies",
                    plan.network_gbit_per_second));
  }
  std::string text = parts.empty() ? "" : fmt::format("at least: {}\n", fmt::join(parts, "; "));
  if (HasShared(plan) && plan.copied_bytes_per_second <= 0) {
    text += "how long shm takes is not known: the memory of the run's machine was not measured\n";
  }
  if (network && plan.network_gbit_per_second <= 0) {
    text +=
        "how long the network takes is not known: cluster.network_gbit_per_second=G says what a "
        "host sends and receives\n";
  }
  return text;
}

std::string CarrierNames(const TransferPlan& plan) {
  std::set<std::string> names;
  for (const PlannedRoute& route : plan.routes) names.insert(CarrierName(route.over));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::string TransferSummary(const TransferPlan& plan) {
  const size_t rollouts = plan.routes.size();
  std::string text =
      fmt::format("{} to {} after a step, over {}", FormatBytes(plan.routes.front().bytes),
                  rollouts == 1 ? "the rollout" : fmt::format("each of {} rollouts", rollouts),
                  CarrierNames(plan));
  if (plan.rounds > 1) text += fmt::format(", in {} rounds", plan.rounds);
  if (plan.first_sync_bytes > plan.routes.front().bytes) {
    text += fmt::format("; {} the first time", FormatBytes(plan.first_sync_bytes));
  }
  if (const double seconds = plan.SyncSeconds(); seconds > 0) {
    text += fmt::format("; a sync takes at least {}", FormatSeconds(seconds));
  }
  return text;
}

std::string TransferText(const TransferPlan& plan) {
  std::string text = "weights: " + TransferSummary(plan) + "\n" + RouteTable(plan);
  if (plan.rollouts_elsewhere) {
    text +=
        "reckoned with rollouts on hosts of their own: those that are on the host of their trainer "
        "share memory instead\n";
  }
  return text + TrainerTable(plan) + Basis(plan);
}

}  // namespace tandem
