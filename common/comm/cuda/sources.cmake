# The communicators between GPUs, once for real and for emulated ones. Paths are relative to common/comm/cuda.
set(TP_CUDA_COMM gpu_choice.cpp gpu_rank.cpp nccl_variables.cpp peer_access.cpp peer_communicator.cpp peer_self_test.cpp
                 peer_staging.cpp peer_transfers.cpp visible_gpus.cpp)
# Beside them one of these: where nccl.h and libnccl are found, and where not.
set(TP_CUDA_COMM_NCCL nccl_communicator.cpp)
set(TP_CUDA_COMM_WITHOUT_NCCL without_nccl.cpp)
