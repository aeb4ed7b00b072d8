// The records of a run as messages of the users' API: what a controller answers, and what tandemctl
// prints of a run that no controller serves.
#pragma once

#include "controller/store/run_store.h"

namespace tandem {

namespace v1 {
class SampleRecord;
class StepRecord;
class WeightSyncRecord;
}  // namespace v1

v1::StepRecord ToProto(const StepRecord& record);
v1::WeightSyncRecord ToProto(const SyncRecord& record);
v1::SampleRecord ToProto(const SampleRecord& record);

}  // namespace tandem
