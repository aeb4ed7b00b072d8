// What a run will write to its disks, estimated before it starts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/config/config.h"
#include "common/model_spec/model_spec.h"

namespace tandem {

// The steps of a run over `train_rows` prompts: trainer.total_training_steps, or whole epochs.
int64_t PlannedSteps(const v1::Config& config, int64_t train_rows);

struct DiskItem {
  std::string what;    // "checkpoints"
  std::string folder;  // need not exist yet
  int64_t bytes = 0;   // in addition to what is there
  std::string how;     // how the number comes about: "3 of 12 MiB"
};

struct DiskPlan {
  int64_t checkpoint_bytes = 0;  // of one
  // The most that are there at once, the one that is being written included. With
  // trainer.max_actor_ckpt_to_keep=0 they grow with the run, and `grows` says so.
  int64_t checkpoints = 1;
  bool grows = false;
  // Upper bounds for the whole run: each response and prompt has its greatest length.
  std::vector<DiskItem> items;
};

// `total_steps`: of the run; `existing_checkpoints`: complete ones that stay in
// trainer.default_local_dir (StayingCheckpoints), whose bytes are used already. Errors as
// MakeLoraSpec.
absl::StatusOr<DiskPlan> PlanDisk(const ModelSpec& spec,
                                  const v1::Config& config,
                                  int64_t total_steps,
                                  int64_t existing_checkpoints = 0);

// What is known of the disk on which a folder lies, or its nearest parent that exists.
struct DiskSpace {
  uint64_t device = 0;  // st_dev: equal for folders of one file system
  int64_t free_bytes = 0;
};
using FindDiskSpace = std::function<DiskSpace(const std::string& folder)>;
// By stat and statvfs; where they fail, no limit.
DiskSpace DiskSpaceOf(const std::string& folder);

// What will be written to one file system, the sum, and what is free there.
struct DiskLine {
  std::string text;
  bool fits = true;
};
// A line for each file system.
std::vector<DiskLine> DiskPlanText(const DiskPlan& plan, const FindDiskSpace& find = DiskSpaceOf);

// ResourceExhausted: the checkpoints that the run keeps do not fit on their disk, with nothing else
// on it; where they grow with the run, not even one does. The message has the sum, what is free,
// and what to change.
absl::Status CheckDiskPlan(const DiskPlan& plan, const FindDiskSpace& find = DiskSpaceOf);

}  // namespace tandem
