// Accumulates the gradients of a backward pass, group by group.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/model/weights_view.h"

namespace tandem {

// Lifecycle of a mini-batch: Begin → (Group(-1), then Group and Reduce of every layer, from the
// last to the first)* → Finish. Begin is local to the rank; Reduce and Finish are collective. Not
// thread-safe.
class GradientAccumulator {
 public:
  virtual ~GradientAccumulator() = default;

  // Allocates the memory if it is not allocated, and zeroes it.
  virtual absl::Status Begin() = 0;
  // The buffer to which to add a group's full fp32 gradients (ViewLayerGradients,
  // ViewGlobalGradients); -1 is the global group. Null if no gradients of the group's weights are
  // needed.
  virtual absl::StatusOr<float*> Group(int layer) = 0;
  // Clears the pointers of a view of Group(layer) whose gradients are not needed, and sets those
  // for gradients of separate adapters.
  virtual void SelectTargets(int /*layer*/, LayerGradients* /*view*/) const {}
  // Called when a micro-batch has added all its gradients of the layer.
  virtual absl::Status Reduce(int layer) = 0;
  // Called at the end of the mini-batch.
  virtual absl::Status Finish() = 0;
  // Releases the memory.
  virtual absl::Status Release() = 0;
};

}  // namespace tandem
