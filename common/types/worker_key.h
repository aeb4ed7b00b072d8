// Which worker: its role and its rank in it.
#pragma once

#include <compare>
#include <string>

namespace tandem {

enum class WorkerRole { kTrainer, kRollout };
std::string RoleName(WorkerRole role);

struct WorkerKey {
  WorkerRole role = WorkerRole::kTrainer;
  int rank = 0;

  auto operator<=>(const WorkerKey&) const = default;
  std::string Text() const { return RoleName(role) + " " + std::to_string(rank); }
};

}  // namespace tandem
