#include "tests/common/weights/pair_peer.h"

int main(int argc, char** argv) { return tandem::testing::RunPairPeer(argc - 1, argv + 1); }
