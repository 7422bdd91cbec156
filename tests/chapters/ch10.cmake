add_chapter_run(ch10_choose_a_layout EXIT 0 OUTPUT "dgx1_v100: 8 GPUs, 4 NICs.*tp=2: {0,3} {1,2} {4,7} {5,6} worst NV2  ok" LAST PASS ARGS)
foreach(fault nic_counted_as_gpu nvlink_anywhere)
  add_chapter_run(ch10_choose_a_layout EXIT 1 LAST FAIL ARGS --fault ${fault})
endforeach()
add_chapter_run(ch10_choose_a_layout EXIT 2 ERROR "layouts: no such subcommand; this version has topology" ARGS layouts)
add_chapter_run(ch10_choose_a_layout EXIT 0 OUTPUT "Usage: ch10_choose_a_layout topology .*--visible" ARGS topology --help)
# Options that do nothing here are not in the help.
add_chapter_run(ch10_choose_a_layout EXIT 0 OUTPUT "Options:[^-]*-h,--help [^-]*--tp,--tensor-parallel-size [^-]*--json [^-]*--report [^-]*--fault [^-]*--topo " ARGS topology --help --seed 1)
add_chapter_run(ch10_choose_a_layout EXIT 2 ERROR "topology: must stand first: ch10_choose_a_layout topology --tp 2 --topo f\n" ARGS --tp 2 topology --topo f)
add_chapter_run(ch10_choose_a_layout EXIT 0 LAST PASS ARGS --json topology)

set(machines ${PROJECT_SOURCE_DIR}/chapters/10_choose_a_layout/samples)
set(data ${PROJECT_SOURCE_DIR}/tests/topology/data)
function(add_topology_run)
  add_chapter_run(ch10_choose_a_layout ${ARGN})
endfunction()

add_topology_run(EXIT 0 LAST PASS ARGS topology --topo ${machines}/dgx_h100.txt
  OUTPUT "8 GPUs, 12 NICs, 2 NUMA nodes.NVLink joins 28 of 28.*GPU7 .*NIC11 .mlx5_11. by PXB.*nearest to no card: NIC1, NIC2, NIC7, NIC8.*4  {0,1,2,3} {4,5,6,7} *NV18 .*VISIBLE_DEVICES=4,5,6,7.*two such machines: tp=8 inside each, pp=2 across")
add_topology_run(EXIT 0 LAST PASS ARGS topology --topo ${machines}/a6000_pairs.txt
  OUTPUT "NVLink joins 4 of 28 pairs.*tp=4: {0,1,2,3} {4,5,6,7}: the group leaves NVLink.*tp=8: .*worst link SYS.*candidates.*instead of tp=4 on {0,1,2,3}: tp=2 x pp=2, stages {0,1} . {2,3} .NV4 inside.*no proof")
add_topology_run(EXIT 0 LAST PASS INPUT ${machines}/workstation.txt ARGS topology --topo -
  OUTPUT "tp=2: GPU0-GPU1: no peer access, CNS .*staged through host memory.*instead of tp=2 on {0,1}: tp=1 x pp=2.*2 replicas of tp=1 too")
foreach(machine pcie_switches a100_four a100_nv12_pairs pcie_3 pcie_6 pcie_7 one_gpu no_affinity a6000_terminal dgx_h100_bom)
  add_topology_run(EXIT 0 LAST PASS ARGS topology --topo ${data}/${machine}.txt)
endforeach()
foreach(machine dgx2_16 pcie_16)
  add_topology_run(EXIT 0 OUTPUT "8  {0,1,2,3,4,5,6,7} {8,9,10,11,12,13,14,15}" LAST "DONE .nothing compared." ARGS topology --topo ${data}/${machine}.txt)
endforeach()
add_topology_run(EXIT 1 LAST "FAIL" ARGS topology --topo ${machines}/dgx_h100.txt --fault nic_counted_as_gpu)
add_topology_run(EXIT 1 LAST "FAIL" ARGS topology --topo ${machines}/dgx1_v100.txt --fault nvlink_anywhere)
add_topology_run(EXIT 2 ERROR "has no NIC" ARGS topology --topo ${machines}/workstation.txt --fault nic_counted_as_gpu)
add_topology_run(EXIT 2 ERROR "all links of this machine are equal" ARGS topology --topo ${machines}/dgx_h100.txt --fault nvlink_anywhere)

# Several files for one machine.
add_topology_run(EXIT 0 LAST PASS OUTPUT "GPU1: 1 of 4 NVLinks are not active.*GPU1: the matrix has NV4, nvlink -s only 3 links active"
  ARGS topology --topo ${data}/a6000_terminal.txt --nvlink ${data}/nvlink_one_down.txt)
add_topology_run(EXIT 0 LAST PASS OUTPUT "topo -p2p w: .*p2p_two.txt, line 1"
  ARGS topology --topo ${machines}/workstation.txt --p2p-write ${data}/p2p_two.txt)
add_topology_run(EXIT 2 ERROR "holds no output of nvidia-smi topo -p2p r" ARGS topology --topo ${data}/one_gpu.txt --p2p-read ${data}/nvlink_one_down.txt)
add_topology_run(EXIT 2 ERROR "--topo and --nvlink: only one option can read standard input" INPUT ${machines}/workstation.txt ARGS topology --topo - --nvlink -)
add_topology_run(EXIT 2 ERROR "--topo /nonexistent: cannot be opened.*--nvlink /nonexistent: cannot be opened" ARGS topology --topo /nonexistent --nvlink /nonexistent)
add_topology_run(EXIT 2 ERROR "cannot be opened" ARGS topology --topo /)
add_topology_run(EXIT 2 ERROR "no matrix of nvidia-smi topo -m" ARGS topology --nvlink ${data}/nvlink_one_down.txt)
add_topology_run(EXIT 2 ERROR "cut_off.txt:1:7: no row for GPU1, GPU2, GPU3: the table ends in line 2 with 1 of 4 rows.*cut_off.txt:2:14: the row of GPU0 ends after 2 of 4 cells" ARGS topology --topo ${data}/cut_off.txt)

# Which cards are visible.
add_topology_run(EXIT 0 LAST PASS OUTPUT "0  GPU3.*1  GPU1.*tp=2 replica 0: CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=3,1" ARGS topology --topo ${machines}/dgx1_v100.txt --visible 3,1)
add_topology_run(EXIT 0 LAST PASS OUTPUT "0  GPU0.*1  GPU3.*Warnings ==\nvisible: the list ends before entry -1: GPUs here are 0 to 7. only 2 cards of it are used\n" ARGS topology --topo ${machines}/dgx1_v100.txt --visible 0,3,-1,1 --tp 2)
add_topology_run(EXIT 0 LAST PASS OUTPUT "Warnings ==\nvisible: the list ends before entry 9: GPUs here are 0 to 7. only 1 card of it is used\n\n" ARGS topology --topo ${machines}/dgx1_v100.txt --visible 0,9,1)
add_topology_run(EXIT 0 LAST PASS OUTPUT "0  GPU5 " ARGS topology --topo ${machines}/dgx1_v100.txt --visible GPU-00000005)
add_topology_run(EXIT 2 ERROR "tp=4: 2 GPUs visible, 4 needed" ARGS topology --topo ${machines}/dgx1_v100.txt --visible 0,3,-1,1 --tp 4)
add_topology_run(EXIT 2 ERROR "GPU 0 twice" ARGS topology --topo ${machines}/dgx1_v100.txt --visible 0,0)
add_topology_run(EXIT 2 ERROR "no GPU is visible" ARGS topology --topo ${machines}/dgx1_v100.txt --visible=-1)
add_topology_run(EXIT 2 ERROR "--visible .0,0,x.: names GPU 0 twice.*--visible .0,0,x.: x: is neither" ARGS topology --topo ${machines}/dgx1_v100.txt --visible 0,0,x)
add_topology_run(EXIT 2 ERROR "tp=4: 2 cards are here, 4 needed" ARGS topology --topo ${machines}/workstation.txt --tp 4)
add_topology_run(EXIT 2 ERROR "more than once" ARGS topology --topo ${machines}/dgx1_v100.txt --visible 0 --visible 1)
add_topology_run(EXIT 2 ERROR "tp=3: does not divide 8 cards; sizes that do: 1, 2, 4, 8" ARGS topology --topo ${machines}/dgx1_v100.txt --tp 3)
add_topology_run(EXIT 2 ERROR "GPU 0: is cut into MIG slices. NCCL groups need whole cards" ARGS topology --topo ${data}/mig.txt)
add_topology_run(EXIT 0 LAST PASS ARGS topology --topo ${data}/mig.txt --visible 1)

# By running nvidia-smi: one that is not there, one that fails, and one that answers.
add_topology_run(EXIT 77 ERROR "nvidia-smi: is not on this machine" ENVIRONMENT PATH=set:/nonexistent ARGS topology)
add_topology_run(EXIT 77 ERROR "nvidia-smi topo -m: failed with exit code 9: NVIDIA-SMI has failed" ENVIRONMENT PATH=path_list_prepend:${CMAKE_CURRENT_SOURCE_DIR}/broken_nvidia_smi ARGS topology)
set(fake PATH=path_list_prepend:${CMAKE_CURRENT_SOURCE_DIR}/fake_nvidia_smi)
add_topology_run(EXIT 0 LAST PASS ENVIRONMENT ${fake} CUDA_VISIBLE_DEVICES=set:1,0 ARGS topology
  OUTPUT "topo -p2p w: nvidia-smi.*0  GPU1  NVIDIA GeForce RTX 4090.*1  GPU0 .*no peer access, CNS.*cards of different models.*set CUDA_DEVICE_ORDER.*CUDA_VISIBLE_DEVICES=1,0")
add_topology_run(EXIT 2 ERROR "CUDA_VISIBLE_DEVICES=.MIG-1" ENVIRONMENT ${fake} CUDA_VISIBLE_DEVICES=set:MIG-1 ARGS topology)
# A file's machine is not this one: its cards are not chosen by the environment here.
add_topology_run(EXIT 0 OUTPUT "^Chapter.*8 GPUs" LAST PASS ENVIRONMENT CUDA_VISIBLE_DEVICES=set:MIG-1 ARGS topology --topo ${machines}/dgx1_v100.txt)
