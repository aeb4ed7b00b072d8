// One side of a pair in a separate process, for the tests of both ends:
//   rollout ADDRESS PAIR_SOCKET SIZE WAY FAULT AT   serves a WeightUpdates until killed
//   trainer ADDRESS SIZE WAY SEED VERSION SLOT_BYTES FAULT AT slots|direct GENERATION
//                                                   publishes once
// SIZE: pair_fixture.h. WAY: MakePairDevice. FAULT, at bucket AT (of those with entries):
//   none
//   die      SIGKILLs itself before it sends or reads the bucket
//   stall    stands still then, for a minute
//   occupy   keeps its device busy before it fills or reads the bucket (PairDevice::Occupy)
//   kill     a rollout: SIGKILLs the trainer that asks it to read the bucket
#pragma once

namespace tandem::testing {

// `argv` begins with the side. The process's exit code.
int RunPairPeer(int argc, char** argv);

}  // namespace tandem::testing
