// Which mixer and channel op a model type is made of. A new architecture adds a row here.
#pragma once

#include <memory>

#include <absl/status/statusor.h>

#include "common/model/mixer.h"

namespace tandem {

struct DecoderLayer {
  std::unique_ptr<Mixer> mixer;
  std::unique_ptr<ChannelOp> channel_op;
};

// Unimplemented names the model type and lists the known ones.
absl::StatusOr<DecoderLayer> MakeDecoderLayer(const ModelSpec& spec);

}  // namespace tandem
