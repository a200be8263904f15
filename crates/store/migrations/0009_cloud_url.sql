-- Where the cloud was found that is used: nothing, if that was before it was noted.

ALTER TABLE cloud_use ADD COLUMN url TEXT;
