# The CUDA kernels, once for all flavours: nvcc compiles them for GPUs, and a C++ compiler for the emulated ones of
# tests/emulated_cuda. Paths are relative to common/device/cuda.
set(TP_CUDA_KERNELS activation.cu decode_attention.cu elementwise.cu embedding.cu prefill_attention.cu reduce.cu
                    rms_norm.cu rope_kv.cu selection.cu)
