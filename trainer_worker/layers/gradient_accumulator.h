// Where a backward pass adds its gradients, group by group.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/model/weights_view.h"

namespace tandem {

// Lifecycle of a mini-batch: Begin → (Group(-1), then Group and Reduce of every layer, backwards)*
// → Finish. Begin is this rank's own; Reduce and Finish are collective. Not thread-safe.
class GradientAccumulator {
 public:
  virtual ~GradientAccumulator() = default;

  // Takes the memory if it is not held; all zero.
  virtual absl::Status Begin() = 0;
  // Where to add a group's full fp32 gradients (ViewLayerGradients, ViewGlobalGradients); -1 is the
  // global group, null where nobody wants gradients of its weights.
  virtual absl::StatusOr<float*> Group(int layer) = 0;
  // Takes those out of a view of Group(layer) that nobody wants, and says where those of adapters
  // beside the weights go.
  virtual void SelectTargets(int /*layer*/, LayerGradients* /*view*/) const {}
  // A micro-batch has added all it has for the layer.
  virtual absl::Status Reduce(int layer) = 0;
  // The mini-batch has ended.
  virtual absl::Status Finish() = 0;
  // Gives the memory back.
  virtual absl::Status Release() = 0;
};

}  // namespace tandem
