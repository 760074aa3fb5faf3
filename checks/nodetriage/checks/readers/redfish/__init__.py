"""What a BMC's Redfish service says (DMTF DSP0266 and DSP0268), as values."""
