// Which devices run trainers and rollouts, and therefore who must sleep while others work, and who
// sends weights to whom. Chosen at assembly by the topology.
#pragma once

#include <memory>

#include <absl/status/status.h>

#include "common/types/topology.h"
#include "controller/step/step_batch.h"
#include "controller/step/step_context.h"
#include "controller/step/train_options.h"
#include "controller/workers/sync_routes.h"

namespace tandem {

// The step's calls are made by the train loop's thread only.
class Placement {
 public:
  virtual ~Placement() = default;

  // Which trainer sends weights to which rollout: the same throughout the run.
  SyncRoutes Routes() const;

  // Makes room for the trainers. `rollouts_busy`: they generate in the background and stay awake.
  virtual absl::Status BeforeTraining(const StepContext& context,
                                      StepBatch& batch,
                                      bool rollouts_busy) = 0;
  // Makes room for a weight sync, after generation in the background has ended.
  virtual void BeforeSync(const StepContext& context, StepBatch& batch) = 0;

 protected:
  explicit Placement(const Topology& topology) : topology_(topology) {}

 private:
  const Topology topology_;
};

// `options` must outlive the placement.
std::unique_ptr<Placement> MakePlacement(const Topology& topology, const TrainOptions& options);

// Trainer and rollout of equal rank share one device: rollouts sleep, with level options.sleep,
// while trainers train, and each trainer sends to the rollout of its device.
class ColocatedPlacement final : public Placement {
 public:
  // `topology` must not be apart; `options` must outlive the placement.
  ColocatedPlacement(const Topology& topology, const TrainOptions& options)
      : Placement(topology), options_(options) {}

  // Waits until a lost rollout has rejoined and generated its part of the probe again. Errors as
  // RolloutFleet::CallAll.
  absl::Status BeforeTraining(const StepContext& context,
                              StepBatch& batch,
                              bool rollouts_busy) override;
  // Puts rollouts that are still awake to sleep. A rollout that does not answer is left to the
  // sync, which waits for its successor: if it rejoined here, it would already be asleep with the
  // version that the sync is about to send.
  void BeforeSync(const StepContext& context, StepBatch& batch) override;

 private:
  const TrainOptions& options_;
  bool admission_closed_ = false;
};

// Every worker has a device of its own, so that nobody makes room for anybody: rollouts stay awake,
// and are only drained before their weights change.
class ApartPlacement final : public Placement {
 public:
  explicit ApartPlacement(const Topology& topology) : Placement(topology) {}

  absl::Status BeforeTraining(const StepContext& context,
                              StepBatch& batch,
                              bool rollouts_busy) override;
  // Drains the rollouts, in a phase named "drain". One that does not answer is left to the sync.
  void BeforeSync(const StepContext& context, StepBatch& batch) override;
};

}  // namespace tandem
